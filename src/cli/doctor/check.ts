/** The result of one check. */
export interface Check {
  /** A stable word for programs. */
  readonly name: string;
  readonly verdict: Verdict;
  readonly found: string;
  /** Advice; absent for "ok". */
  readonly remedy?: string;
}

/** `warn`: locks work, with a drawback. `skipped`: an earlier check failed. */
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
