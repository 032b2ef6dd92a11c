/**
 * Time that all threads of a process have in common. `performance.now()` begins anew in every thread; `process.hrtime` counts
 * from the same moment in all of them. Underneath both are one clock, so the difference between them never changes.
 */
import { type Clock, systemClock } from "../../platform/index.ts";

/** Milliseconds that only grow, the same in every thread. */
export function sharedMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** This machine's clock, whose monotonic time is the one that threads share. */
export const sharedClock: Clock = { ...systemClock, monotonicMs: sharedMs };

/** How often the difference is measured. The best one counts: a thread can be interrupted between two looks at the clocks. */
const LOOKS = 20;

/**
 * How much the shared time is ahead of another monotonic time, and up to some microseconds more, never less. So a moment of
 * the shared time that is told in the other one comes too early rather than too late: a lease ends too early, not too late.
 */
export function sharedAheadMs(monotonicMs: () => number): number {
  let aheadMs = Number.POSITIVE_INFINITY;
  for (let look = 0; look < LOOKS; look++) {
    const beforeMs = monotonicMs();
    aheadMs = Math.min(aheadMs, sharedMs() - beforeMs);
  }
  return aheadMs;
}
