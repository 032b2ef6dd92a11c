/** What a record has to do with others: one claim may be spread over the records of several stores. */

import type { AgreedGrant, ClaimRef } from "../store/index.ts";
import { findClaim, isOwn, type LockRecord, type RecordClaim, settle, type Turn } from "./record.ts";

/** Stands for several who proposed the same fence. None of them can take it back any more. */
const JOINED = "*";

/** Puts the grant that several stores agreed upon in place of the record's own. Whether that one is still in force. */
export function confirm(
  record: LockRecord,
  ref: ClaimRef,
  own: bigint,
  agreed: AgreedGrant,
  turn: Turn,
): boolean {
  settle(record, turn);
  const claim = findClaim(record, ref.id);
  if (claim === undefined || claim.fence === 0n || !isOwn(claim, ref)) return false;
  // Granted anew since: whatever was agreed upon before is not about this grant.
  if (claim.fence !== own && claim.fence !== agreed.fence) return false;
  const by = agreedBy(claim, agreed);
  if (by === undefined) return false;
  claim.agreedBy = by;
  claim.fence = agreed.fence;
  claim.acquiredAtMs = agreed.acquiredAtMs;
  if (agreed.fence > record.fence) record.fence = agreed.fence;
  return true;
}

/** Whose the fence is from now on; undefined where it is somebody else's, who may have handed it out. */
function agreedBy(claim: RecordClaim, { fence, by }: AgreedGrant): string | undefined {
  if (by === undefined) return JOINED;
  if (claim.agreedBy === "" || claim.agreedBy === by) return by;
  return claim.fence === fence ? JOINED : undefined;
}
