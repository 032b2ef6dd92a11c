/** What a process does whose wall clock is wrong: it takes turns at a lock with others, and leaves one lease to its ttl. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Store } from "holdfast";

/** A lease that it had, told just before it gives it back. Times are on the clock that all processes of the machine share. */
export interface TurnMessage {
  readonly fence: string;
  readonly fromMs: number;
  /** Until when nobody else may have the lock. */
  readonly untilMs: number;
  /** Whether it was not given back. */
  readonly isLeft: boolean;
  /** What the process takes the time to be. */
  readonly wallMs: number;
}

/** Which of its turns ends by the ttl. */
const LEFT = 2;

/** Goes on until the process is killed. */
export async function takeTurns(store: Store, ttlMs: number): Promise<void> {
  const locks = createLocks(store, { onWarning: () => {} });
  for (let turn = 1; ; turn++) {
    const isLeft = turn === LEFT;
    const lease = await locks.mutex("turns", { ttlMs, renew: !isLeft }).acquire();
    const fromMs = monotonicMs();
    const endMs = fromMs + lease.expiresAtMs - Date.now();
    if (!isLeft) await sleep(20);
    // On a busy machine it may have ended by itself.
    const untilMs = isLeft || !lease.held ? endMs : monotonicMs();
    tell({ fence: String(lease.fence), fromMs, untilMs, isLeft, wallMs: Date.now() });
    if (!isLeft) await lease.release();
  }
}

function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

function tell(message: TurnMessage): void {
  process.send?.(message);
}
