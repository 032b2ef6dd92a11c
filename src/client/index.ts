export { runBody } from "./body.ts";
export { closedError } from "./claim-errors.ts";
export { endable, Waiting } from "./endable.ts";
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
export { Heartbeat } from "./heartbeat.ts";
export { jsonable } from "./jsonable.ts";
export { Lease, type LeaseState, type ReleaseOptions } from "./lease.ts";
export {
  isOutage,
  KeyLock,
  type Lock,
  type Lockable,
  lookAtKey,
  type RwLock,
  runAndRelease,
  type Semaphore,
  type TryRunResult,
} from "./lock.ts";
export { LeaseGroup, type LockGroup } from "./lock-group.ts";
export { type CloseOptions, createLocks, type ListOptions, type Locks } from "./locks.ts";
export {
  type AcquireOptions,
  checkKeyLabel,
  type HoldfastWarning,
  type KeyLabel,
  type LockOptions,
  type LockSettings,
  type LocksOptions,
  locksOptionNames,
  type PermitOptions,
  resolveLockOptions,
  type TryOptions,
} from "./options.ts";
export type { HeartbeatThread, KeptClaim, StandbyHeartbeat, StandbyLoss, StandbyTerms } from "./standby.ts";
export type { LocksStats } from "./stats.ts";
