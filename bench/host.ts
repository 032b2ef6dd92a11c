/**
 * What the host of a virtual machine takes of its processors for others. Speeds of two hours can be compared only where that was the same; ratios
 * that were measured in turns can be compared anyway.
 */
import { readFileSync } from "node:fs";

/** Begins to watch. Returns what tells the share since then: undefined where the system does not count it. */
export function watchHost(): () => number | undefined {
  const before = processorTimes();
  return () => {
    const after = processorTimes();
    if (before === undefined || after === undefined) return undefined;
    return (after.taken - before.taken) / Math.max(1, after.all - before.all);
  };
}

/** The time of all processors since the start, in ticks, as Linux counts it. */
function processorTimes(): { readonly all: number; readonly taken: number } | undefined {
  try {
    const [line = ""] = readFileSync("/proc/stat", "utf8").split("\n", 1);
    // user nice system idle iowait irq softirq steal; what follows is part of the first two.
    const ticks = line.trim().split(/\s+/).slice(1, 9).map(Number);
    return { all: ticks.reduce((sum, each) => sum + each, 0), taken: ticks[7] ?? 0 };
  } catch {
    return undefined;
  }
}
