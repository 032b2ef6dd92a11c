/** The log of leases that killed processes leave, and the faults in it. */
import { existsSync, readFileSync } from "node:fs";

/** The clock that all processes of the machine share. */
export const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;

export interface Grant {
  readonly key: string;
  readonly fence: bigint;
  readonly atMs: number;
  readonly untilMs: number;
  readonly pid: number;
  /** Whether it was about to be given back, … */
  ended: boolean;
  /** … and whether that was confirmed. */
  freed: boolean;
}

export function grantsIn(log: string): Grant[] {
  const grants = new Map<string, Grant>();
  // The last line may be unfinished.
  const lines = existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : [];
  for (const line of lines) {
    const [word, key = "", fence = "", atMs, untilMs, pid] = line.split(" ");
    const name = `${key} ${fence}`;
    if (word === "end" || word === "freed") {
      const grant = grants.get(name);
      if (grant !== undefined) grant[word === "end" ? "ended" : "freed"] = true;
      continue;
    }
    const times = { atMs: Number(atMs), untilMs: Number(untilMs) };
    grants.set(name, { key, fence: BigInt(fence), ...times, pid: Number(pid), ended: false, freed: false });
  }
  return [...grants.values()];
}

/** How many leases processes had that were killed then. */
export function heldBy(killedMs: ReadonlyMap<number, number>, grants: readonly Grant[]): number {
  const isHeld = ({ pid, atMs, untilMs, ended }: Grant) => {
    const killed = killedMs.get(pid);
    return !ended && killed !== undefined && atMs <= killed && killed < untilMs;
  };
  return grants.filter(isHeld).length;
}

/** The faults in the grants of one key, in the order of the log. */
export function judge(grants: readonly Grant[]): string[] {
  const found: string[] = [];
  for (const [index, grant] of grants.entries()) {
    const before = grants[index - 1];
    if (before === undefined) continue;
    const { key, fence } = grant;
    if (fence <= before.fence) found.push(`${key}: fence ${fence} came after ${before.fence}`);
    if (!before.ended && grant.atMs < before.untilMs) {
      const earlyMs = before.untilMs - grant.atMs;
      found.push(`${key}: fence ${fence} was granted ${earlyMs} ms before ${before.fence} had ended`);
    }
  }
  return found;
}
