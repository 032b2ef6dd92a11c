import { createLocks as createLocksOver, type Locks, type LocksOptions } from "./client/index.ts";
import type { Store } from "./store/index.ts";
import { memoryStore } from "./stores/memory/index.ts";

/**
 * Makes a client over a store; without one, over the memory of this process. Cheap: one heartbeat loop and one
 * subscription, however many locks.
 *
 * @example
 * const locks = createLocks();
 * await locks.mutex("nightly-report").run(async (lease) => { … });
 */
export function createLocks(store: Store = memoryStore(), options: LocksOptions = {}): Locks {
  return createLocksOver(store, options);
}

export {
  type AcquireEvent,
  type AcquireOptions,
  type CancelledEvent,
  type CancelReason,
  type ClaimEvent,
  type ClientEvent,
  type CloseOptions,
  type EndEvent,
  type EventClaim,
  type EventHandlers,
  type EventKind,
  type ExtendedEvent,
  type FailedEvent,
  type ForceReleasedEvent,
  type GrantedEvent,
  type HeartbeatThread,
  type HoldfastEvents,
  type HoldfastWarning,
  type KeyLabel,
  Lease,
  LeaseGroup,
  type LeaseState,
  type ListOptions,
  type Lock,
  type Lockable,
  type LockGroup,
  type LockOptions,
  type Locks,
  type LocksOptions,
  type LocksStats,
  type LostEvent,
  type OutcomeEvent,
  observe,
  type PermitOptions,
  type ReleasedEvent,
  type ReleaseFailedEvent,
  type ReleaseOptions,
  type RenewalFailedEvent,
  type RenewedEvent,
  type RwLock,
  type Semaphore,
  type StoreAvailableEvent,
  type StoreUnavailableEvent,
  type Trouble,
  type TryOptions,
  type TryRunResult,
  type WarningEvent,
} from "./client/index.ts";
export type {
  Election,
  ElectionOptions,
  ElectionStatus,
  LeadBody,
  Leader,
  LeaderView,
  LeadOptions,
  ObserveOptions,
  Once,
  OnceOptions,
  RunOutcome,
  RunRecord,
  Schedule,
  ScheduleBody,
  ScheduledRun,
  ScheduleOptions,
  ScheduleStatus,
  ScheduleStopOptions,
  Term,
} from "./coordination/index.ts";
export { type Clock, systemClock, type Timer } from "./platform/index.ts";
export {
  decodeRecord,
  encodeRecord,
  type LockRecord,
  RECORD_VERSION,
  type RecordClaim,
  type Turn,
} from "./record/index.ts";
// What applications use.
// What authors of stores use.
export {
  type AcquireAnswer,
  AcquireTimeoutError,
  type AgreedGrant,
  bounds,
  type ClaimRef,
  type ClaimRequest,
  type ClaimStatus,
  type Durability,
  type ErrorCode,
  type ErrorDetails,
  type FailedAnswer,
  type GoneAnswer,
  type GrantListener,
  type GrantRef,
  type HeldAnswer,
  HoldfastError,
  type KeyStatus,
  LeaseLostError,
  type LookPage,
  type LookQuery,
  type LossReason,
  type QuorumMember,
  type RefusalReason,
  type RefusedAnswer,
  type RenewAnswer,
  type RenewRef,
  type Store,
  StoreUnavailableError,
  UNLIMITED,
  type Unsubscribe,
  type WaitingAnswer,
} from "./store/index.ts";
export { type MemoryStoreOptions, memoryStore } from "./stores/memory/index.ts";
