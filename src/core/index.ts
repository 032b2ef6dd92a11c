export * from "./clock.ts";
export type {
  Election,
  ElectionOptions,
  ElectionStatus,
  LeadBody,
  LeadOptions,
  Term,
} from "./election.ts";
export * from "./errors.ts";
export { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "./heap.ts";
export type { LocksStats } from "./heartbeat.ts";
export { IdIndex } from "./id-index.ts";
export type { Leader, LeaderView, ObserveOptions } from "./leader-watch.ts";
export { Lease, type ReleaseOptions } from "./lease.ts";
export type { LeaseState } from "./live-claim.ts";
export type { Lock, Lockable, RwLock, Semaphore, TryRunResult } from "./lock.ts";
export { LeaseGroup, type LockGroup } from "./lock-group.ts";
export { type CloseOptions, createLocks, type ListOptions, type Locks } from "./locks.ts";
export type { Once, OnceOptions } from "./once.ts";
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
export type { RunOutcome, RunRecord } from "./run-note.ts";
export type { Schedule, ScheduleStatus, ScheduleStopOptions } from "./schedule.ts";
export type { ScheduleOptions } from "./schedule-options.ts";
export * from "./store.ts";
export type { ScheduleBody, ScheduledRun } from "./tick-run.ts";
export {
  bounds,
  checkBoolean,
  checkChoice,
  checkInteger,
  checkKey,
  checkQuery,
  checkRenewRef,
  checkRequest,
  checkTtl,
  invalid,
} from "./validation.ts";
