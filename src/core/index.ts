export { onAbort } from "./abort-listeners.ts";
export { unsoundError } from "./claim-errors.ts";
export * from "./clock.ts";
export { commonFailure } from "./common-failure.ts";
export type {
  Election,
  ElectionOptions,
  ElectionStatus,
  LeadBody,
  LeadOptions,
  Term,
} from "./election/election.ts";
export type { Leader, LeaderView, ObserveOptions } from "./election/leader-watch.ts";
export * from "./errors.ts";
export {
  type AcquireEvent,
  type CancelledEvent,
  type CancelReason,
  type ClaimEvent,
  type ClientEvent,
  type EndEvent,
  type EventClaim,
  type EventHandlers,
  type EventKind,
  type ExtendedEvent,
  type FailedEvent,
  type ForceReleasedEvent,
  type GrantedEvent,
  type HoldfastEvents,
  type LostEvent,
  type OutcomeEvent,
  observe,
  type ReleasedEvent,
  type ReleaseFailedEvent,
  type RenewalFailedEvent,
  type RenewedEvent,
  type StoreAvailableEvent,
  type StoreUnavailableEvent,
  type Trouble,
  type WarningEvent,
} from "./events.ts";
export { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "./heap.ts";
export { heartbeatCalls } from "./heartbeat-calls.ts";
export { IdIndex } from "./id-index.ts";
export { Lease, type LeaseState, type ReleaseOptions } from "./lease.ts";
export type { Lock, Lockable, RwLock, Semaphore, TryRunResult } from "./lock.ts";
export { LeaseGroup, type LockGroup } from "./lock-group.ts";
export { type CloseOptions, createLocks, type ListOptions, type Locks } from "./locks.ts";
export type { Once, OnceOptions } from "./once.ts";
export {
  type AcquireOptions,
  checkKeyLabel,
  type HoldfastWarning,
  type KeyLabel,
  type LockOptions,
  type LocksOptions,
  locksOptionNames,
  type PermitOptions,
  type TryOptions,
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
export { isScheduleNote, type RunOutcome, type RunRecord } from "./schedule/run-note.ts";
export type { Schedule, ScheduleStatus, ScheduleStopOptions } from "./schedule/schedule.ts";
export type { ScheduleOptions } from "./schedule/schedule-options.ts";
export type { ScheduleBody, ScheduledRun } from "./schedule/tick-run.ts";
export { clearRecord, restoreRecord, soleClaim } from "./sole-claim.ts";
export type {
  HeartbeatThread,
  KeptClaim,
  StandbyHeartbeat,
  StandbyLoss,
  StandbyTerms,
} from "./standby.ts";
export type { LocksStats } from "./stats.ts";
export { StayAwake } from "./stay-awake.ts";
export * from "./store.ts";
export { callStore, isSound } from "./store-calls.ts";
export { classesOf, closedStore, type ErrorMeaning, isMistake, meaning, storeError } from "./store-errors.ts";
export { didYouMean, nearest } from "./suggestion.ts";
export {
  bounds,
  checkBoolean,
  checkChoice,
  checkFraction,
  checkId,
  checkInfo,
  checkInteger,
  checkKey,
  checkOptionNames,
  checkPrefix,
  checkQuery,
  checkRenewRef,
  checkRequest,
  checkTtl,
  DEFAULT_CLOCK_DRIFT,
  invalid,
} from "./validation.ts";
