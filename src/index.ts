import { createLocks as createLocksOver, type Locks, type LocksOptions, type Store } from "./core/index.ts";
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

// What applications use.
// What authors of stores use.
export {
  type AcquireAnswer,
  type AcquireOptions,
  AcquireTimeoutError,
  type AgreedGrant,
  bounds,
  type ClaimRef,
  type ClaimRequest,
  type ClaimStatus,
  type Clock,
  type CloseOptions,
  type Durability,
  decodeRecord,
  type ErrorCode,
  type ErrorDetails,
  encodeRecord,
  type FailedAnswer,
  type GoneAnswer,
  type GrantListener,
  type GrantRef,
  type HeartbeatThread,
  type HeldAnswer,
  HoldfastError,
  type HoldfastWarning,
  type KeyStatus,
  Lease,
  LeaseGroup,
  LeaseLostError,
  type LeaseState,
  type ListOptions,
  type Lock,
  type Lockable,
  type LockGroup,
  type LockOptions,
  type LockRecord,
  type Locks,
  type LocksOptions,
  type LocksStats,
  type LookPage,
  type LookQuery,
  type LossReason,
  type PermitOptions,
  type QuorumMember,
  RECORD_VERSION,
  type RecordClaim,
  type RefusalReason,
  type RefusedAnswer,
  type ReleaseOptions,
  type RenewAnswer,
  type RenewRef,
  type RwLock,
  type Semaphore,
  type Store,
  StoreUnavailableError,
  systemClock,
  type Timer,
  type TryOptions,
  type TryRunResult,
  type Turn,
  UNLIMITED,
  type Unsubscribe,
  type WaitingAnswer,
} from "./core/index.ts";
export { type MemoryStoreOptions, memoryStore } from "./stores/memory/index.ts";
