/** A process that holds many leases and does nothing but renew them. */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Lease } from "holdfast";
import { offer } from "../child.ts";

/** How long the spreading of acquires sleeps at a time. */
const STEP_MS = 10;

const locks = createLocks();
const held: Lease[] = [];

/** What a stretch of time came to. */
export interface Stretch {
  /** Time of the processor, as a fraction of one core. */
  readonly cpu: number;
  readonly renewalsPerSecond: number;
  /** By how much the event loop was late at worst. */
  readonly longestDelayMs: number;
}

const renewals = {
  /** Acquires that many leases, spread evenly over a renewal period, so that their heartbeats are as well. */
  async hold({ leases, ttlMs }: { readonly leases: number; readonly ttlMs: number }): Promise<void> {
    const spreadMs = ttlMs / 3;
    const startMs = performance.now();
    while (held.length < leases) {
      const due = Math.min(leases, ((performance.now() - startMs) / spreadMs) * leases);
      while (held.length < due) {
        held.push(await locks.mutex(`held:${held.length}`, { ttlMs }).acquire());
      }
      await sleep(STEP_MS);
    }
  },
  /** Watches what this process uses for that long. */
  async watch(durationMs: number): Promise<Stretch> {
    const delay = monitorEventLoopDelay({ resolution: 10 });
    const before = locks.stats().renewals;
    const startMs = performance.now();
    const startUsage = process.cpuUsage();
    delay.enable();
    await sleep(durationMs);
    delay.disable();
    const { user, system } = process.cpuUsage(startUsage);
    const tookMs = performance.now() - startMs;
    const { lost, renewals } = locks.stats();
    if (lost > 0) throw new Error(`${lost} leases were lost.`);
    return {
      cpu: (user + system) / 1_000 / tookMs,
      renewalsPerSecond: ((renewals - before) / tookMs) * 1_000,
      // The monitor counts its own interval as well.
      longestDelayMs: Math.max(0, delay.max / 1e6 - 10),
    };
  },
};

export type Renewals = typeof renewals;

offer(renewals);
