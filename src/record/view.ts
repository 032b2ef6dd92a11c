/** What an administrator sees of a record. */

import type { ClaimStatus, KeyStatus } from "../store/index.ts";
import { byTurn, type LockRecord, type RecordClaim } from "./record.ts";

/**
 * Shows who holds the key and who waits. It changes nothing, so a claim whose turn has come is shown as waiting until
 * somebody asks.
 */
export function describe(record: LockRecord, key: string, nowMs: number, maxClaims: number): KeyStatus {
  const alive = (claim: RecordClaim) => claim.expiresAtMs > nowMs;
  const held = record.held.filter(alive).sort((a, b) => (a.fence < b.fence ? -1 : 1));
  const waiting = record.queue.filter(alive).sort(byTurn);
  const show = (claim: RecordClaim) => claimStatus(claim, nowMs);
  return {
    key,
    fence: record.fence,
    held: held.slice(0, maxClaims).map(show),
    heldCount: held.length,
    heldWeight: held.reduce((sum, claim) => sum + claim.weight, 0),
    waiting: waiting.slice(0, maxClaims).map(show),
    waitingCount: waiting.length,
  };
}

function claimStatus(claim: RecordClaim, nowMs: number): ClaimStatus {
  const { id, weight, limit, priority, ttlMs, owner, info, application } = claim;
  const expiresInMs = claim.expiresAtMs - nowMs;
  const common = { id, weight, limit, priority, ttlMs, owner, info, application, expiresInMs };
  return claim.fence === 0n
    ? { ...common, state: "waiting" }
    : { ...common, state: "held", fence: claim.fence, acquiredAtMs: claim.acquiredAtMs };
}
