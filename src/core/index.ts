export * from "./clock.ts";
export * from "./errors.ts";
export { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "./heap.ts";
export type { LocksStats } from "./heartbeat.ts";
export { IdIndex } from "./id-index.ts";
export { Lease, type ReleaseOptions } from "./lease.ts";
export type { LeaseState } from "./live-claim.ts";
export type { Lock, Lockable, RwLock, Semaphore, TryRunResult } from "./lock.ts";
export { LeaseGroup, type LockGroup } from "./lock-group.ts";
export { type CloseOptions, createLocks, type ListOptions, type Locks } from "./locks.ts";
export type {
  AcquireOptions,
  HoldfastWarning,
  LockOptions,
  LocksOptions,
  PermitOptions,
  TryOptions,
} from "./options.ts";
export {
  acquire,
  emptyRecord,
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
export { confirm } from "./record-agreement.ts";
export { decodeRecord, encodeRecord, RECORD_VERSION } from "./record-format.ts";
export { describe } from "./record-view.ts";
export type {
  HeartbeatThread,
  KeptClaim,
  StandbyHeartbeat,
  StandbyLoss,
  StandbyTerms,
} from "./standby.ts";
export * from "./store.ts";
export { callStore, isSound } from "./store-calls.ts";
export {
  bounds,
  checkBoolean,
  checkChoice,
  checkInteger,
  checkQuery,
  checkRenewRef,
  checkRequest,
  checkTtl,
  invalid,
} from "./validation.ts";
