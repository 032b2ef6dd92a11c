/**
 * The times at which a command is stopped whose lease is not renewed, so that it is dead before the lock can be granted again.
 *
 * They count back from the end of the proven lease, which is before its expiry in the store:
 *
 * ```text
 *   last confirmed heartbeat                                            proven until   expires
 *   │          next heartbeat, repeated if it fails      SIGTERM      SIGKILL │           │
 *   ├──────────────┬────────────────────────────────────────┬────────────┬────┼───────────┤
 *   0            ttl/3                                       killAfter     margin
 * ```
 *
 * - The whole process group gets `SIGTERM` at `killAfter + margin` before the end, and `SIGKILL` at `margin` before it.
 * - In the middle of the margin the watchdog process sends `SIGKILL` again, in case this process is stopped or starved.
 * - Both together take at most half of the ttl. So a lost heartbeat, due at a third, has a sixth of the ttl or more for retries
 *   before `SIGTERM`.
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

const MAX_KILL_AFTER_MS = 10_000;

export interface KillPlanOptions {
  readonly ttlMs: number;
  readonly killAfterMs?: number | undefined;
  readonly marginMs?: number | undefined;
}

/** Resolves defaults, and refuses a ttl that is too short. */
export function planKill({ ttlMs, killAfterMs, marginMs }: KillPlanOptions): KillPlan {
  const margin = marginMs ?? Math.min(1_000, Math.max(250, Math.floor(ttlMs / 20)));
  if (margin < 1)
    throw usageError("--margin must be 1ms or more, not 0, because killing a process takes time.");
  const half = Math.floor(ttlMs / 2);
  const killAfter =
    killAfterMs ?? Math.max(0, Math.min(MAX_KILL_AFTER_MS, Math.floor(ttlMs / 3), half - margin));
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
