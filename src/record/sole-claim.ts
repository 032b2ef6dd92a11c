/** Records in short: the claim that holds the key, where that is all there is to know. So it is with most keys. */
import { addHeld, type LockRecord, type RecordClaim } from "./record.ts";

/** The one claim of a record from which `restoreRecord` makes the same one again, if there is such. */
export function soleClaim(record: LockRecord): RecordClaim | undefined {
  if (record.held.length !== 1 || record.queue.length > 0) return undefined;
  const claim = record.held[0];
  // A later grant that is over has left its fence behind, which must not be forgotten.
  return claim?.fence === record.fence ? claim : undefined;
}

/** Makes an empty record that of its sole claim. */
export function restoreRecord(record: LockRecord, claim: RecordClaim): void {
  addHeld(record, claim);
  record.fence = claim.fence;
  record.arrivals = claim.arrival + 1;
}

/** Makes a record empty that is idle or has only a sole claim. */
export function clearRecord(record: LockRecord): void {
  record.held.pop();
  record.heldWeight = 0;
  record.fence = 0n;
  record.arrivals = 0;
}
