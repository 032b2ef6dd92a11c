export { confirm } from "./agreement.ts";
export { decodeRecord, encodeRecord, RECORD_VERSION } from "./format.ts";
export { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "./heap.ts";
export { IdIndex } from "./id-index.ts";
export { emptyRecord } from "./new-record.ts";
export {
  acquire,
  findClaim,
  isIdle,
  type LockRecord,
  type RecordClaim,
  release,
  renew,
  setEnd,
  settle,
  type Turn,
} from "./record.ts";
export { clearRecord, restoreRecord, soleClaim } from "./sole-claim.ts";
export { describe } from "./view.ts";
