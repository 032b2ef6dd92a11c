/** The work of a process with a wrong wall clock: it takes turns at a lock, and leaves one lease to its ttl. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Store } from "holdfast";

/** A lease, reported just before its release. Times are on the clock that all processes of the machine share. */
export interface TurnMessage {
  readonly fence: string;
  readonly fromMs: number;
  /** The end of the lease for others. */
  readonly untilMs: number;
  /** Whether it was left to its ttl. */
  readonly isLeft: boolean;
  /** The time by the clock of the process. */
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
