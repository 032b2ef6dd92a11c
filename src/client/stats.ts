import type { LossReason } from "../store/index.ts";

/** What a client has done so far and what it has open, for metrics. All but `held`, `waiting` and `storeAvailable` only grow. */
export interface LocksStats {
  /** Leases held now. */
  held: number;
  /** Claims waiting in a queue now. */
  waiting: number;
  /** Calls that asked for a lock. Each ends as granted, contended, timed out, cancelled or failed. */
  asked: number;
  /** Grants received, those that won a lost lease again included. */
  granted: number;
  /** Grants that won a lost lease again (`reacquire`). */
  regained: number;
  /** Tries that found the lock taken. */
  contended: number;
  /** Calls whose `waitMs` was over before the lock came free. */
  timedOut: number;
  /** Calls that were cancelled by their signal, or cut off by `close`. */
  cancelled: number;
  /** Calls that an error ended: an outage, a full queue, a missing permission. */
  failed: number;
  /** Leases given back. */
  released: number;
  /** Leases given back without the store confirming it: their ttl ends them. Also counted as released. */
  releaseFailures: number;
  /** Leases left in the store for somebody else (`detach`). */
  detached: number;
  /** Leases lost, for whatever reason. */
  lost: number;
  /** The same by reason. */
  readonly lostBy: Record<LossReason, number>;
  /** Leases garbage-collected without having been released; also counted as lost. */
  unreleased: number;
  /** Heartbeats sent. */
  renewals: number;
  /** Heartbeats of held leases that failed or went unanswered. They are repeated until the lease's deadline. */
  renewalFailures: number;
  /** Requests that the store failed. */
  failures: number;
  /** How often the store became unavailable: it failed a request so, or was silent for too long. */
  outages: number;
  /** Tries that reported "not acquired" because the store was unavailable. */
  skipped: number;
  /** Claims that this client ended by force. */
  forceReleased: number;
  /** Warnings told. */
  warnings: number;
  /** Whether the store answered the latest request that has come to anything. */
  storeAvailable: boolean;
}

export function newStats(): LocksStats {
  return {
    held: 0,
    waiting: 0,
    asked: 0,
    granted: 0,
    regained: 0,
    contended: 0,
    timedOut: 0,
    cancelled: 0,
    failed: 0,
    released: 0,
    releaseFailures: 0,
    detached: 0,
    lost: 0,
    lostBy: { expired: 0, gone: 0, "taken-over": 0, "max-hold": 0, abandoned: 0, closed: 0, blocked: 0 },
    unreleased: 0,
    renewals: 0,
    renewalFailures: 0,
    failures: 0,
    outages: 0,
    skipped: 0,
    forceReleased: 0,
    warnings: 0,
    storeAvailable: true,
  };
}

/** A copy that does not change any more. */
export function snapshotOf(stats: LocksStats): LocksStats {
  return { ...stats, lostBy: { ...stats.lostBy } };
}
