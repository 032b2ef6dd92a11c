/**
 * When a command is stopped whose lease is not being renewed, so that it is dead before anybody else can be granted the lock.
 *
 * Counted back from the moment until which the lease is proven, which is before the store can let it expire:
 *
 * ```text
 *   last confirmed heartbeat                                            proven until   expires
 *   │          next heartbeat, repeated if it fails      SIGTERM      SIGKILL │           │
 *   ├──────────────┬────────────────────────────────────────┬────────────┬────┼───────────┤
 *   0            ttl/3                                       killAfter     margin
 * ```
 *
 * - `SIGTERM` goes out at `killAfter + margin` before the end, `SIGKILL` at `margin` before it, each to the whole group.
 * - In the middle of the margin a watchdog, which is a process of its own, sends `SIGKILL` once more: this process may be stopped
 *   or starved.
 * - Both together may take half of the ttl at most. So between the heartbeat that is due at a third and `SIGTERM` there is
 *   a sixth of the ttl or more, in which a lost heartbeat is repeated, and a hiccup of the store stops nothing.
 */

import { writeDuration } from "./duration.ts";
import { usageError } from "./failure.ts";

export interface KillPlan {
  readonly ttlMs: number;
  /** From SIGTERM to SIGKILL. */
  readonly killAfterMs: number;
  /** From SIGKILL to the end of the lease. */
  readonly marginMs: number;
}

const LONGEST_KILL_AFTER_MS = 10_000;

export interface KillPlanOptions {
  readonly ttlMs: number;
  readonly killAfterMs?: number | undefined;
  readonly marginMs?: number | undefined;
}

/** Resolves what was left out, and refuses a ttl that is too short for the rest. */
export function planKill({ ttlMs, killAfterMs, marginMs }: KillPlanOptions): KillPlan {
  const margin = marginMs ?? Math.min(1_000, Math.max(250, Math.floor(ttlMs / 20)));
  if (margin < 1)
    throw usageError("--margin must be 1ms or more, not 0, because killing a process takes time.");
  const half = Math.floor(ttlMs / 2);
  const killAfter =
    killAfterMs ?? Math.max(0, Math.min(LONGEST_KILL_AFTER_MS, Math.floor(ttlMs / 3), half - margin));
  if (killAfter + margin > half) {
    const least = writeDuration(2 * (killAfter + margin));
    throw usageError(
      `--ttl ${writeDuration(ttlMs)} is too short to stop the command in time. --kill-after ${writeDuration(killAfter)} and ` +
        `--margin ${writeDuration(margin)} together must be at most half of it.`,
      `Use --ttl ${least} or more${killAfterMs === undefined ? "" : ", or a shorter --kill-after"}.`,
    );
  }
  return { ttlMs, killAfterMs: killAfter, marginMs: margin };
}
