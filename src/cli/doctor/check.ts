/** One thing that was looked at. */
export interface Check {
  /** A stable word for programs. */
  readonly name: string;
  readonly verdict: Verdict;
  /** What was found. */
  readonly found: string;
  /** What to do about it; absent where all is well. */
  readonly remedy?: string;
}

/** `warn`: it works, with a consequence that people should know of. `skipped`: an earlier failure is in the way. */
export type Verdict = "ok" | "warn" | "fail" | "skipped";

export function ok(name: string, found: string): Check {
  return { name, verdict: "ok", found };
}

export function warn(name: string, found: string, remedy: string): Check {
  return { name, verdict: "warn", found, remedy };
}

export function fail(name: string, found: string, remedy: string): Check {
  return { name, verdict: "fail", found, remedy };
}
