/** Locks that nobody else wants, taken and given back by many callers of this process for some time. */
import { collectYoungGarbage } from "./rounds.ts";
import { quantileOf } from "./statistics.ts";

/** Waits for a key. Resolves to what gives it back. */
export type Acquire = (key: string) => Promise<() => Promise<unknown>>;

/** What a round came to. */
export interface Speed {
  /** What a cycle took, callers side by side, in nanoseconds. */
  readonly cycleNs: number;
  /** What the slowest hundredth of the cycles took at least. */
  readonly p99Ms: number;
}

export interface CycleSizes {
  readonly callers: number;
  /** By time, as speeds differ by a factor of a hundred. */
  readonly roundMs: number;
}

/** One round. */
export async function cycleFor({ callers, roundMs }: CycleSizes, acquire: Acquire): Promise<Speed> {
  collectYoungGarbage();
  const tookMs: number[] = [];
  const startMs = performance.now();
  async function call(caller: number): Promise<void> {
    const key = `bench:${process.pid}:${caller}`;
    for (let nowMs = startMs; nowMs - startMs < roundMs; ) {
      await (await acquire(key))();
      const endMs = performance.now();
      tookMs.push(endMs - nowMs);
      nowMs = endMs;
    }
  }
  await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)));
  const cycleNs = ((performance.now() - startMs) * 1e6) / tookMs.length;
  return { cycleNs, p99Ms: quantileOf(tookMs, 0.99) };
}
