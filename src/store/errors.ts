/**
 * Every reason for which Holdfast fails, as a closed set that is stable across releases and stores.
 *
 * Contention is not among them: a try that did not get the lock is a value (`null`, `{ ran: false }`).
 */
export type ErrorCode =
  /** The lock did not come free within `waitMs`. */
  | "ACQUIRE_TIMEOUT"
  /** The lease can no longer be proven: it expired, was taken away, or reached `maxHoldMs`. */
  | "LEASE_LOST"
  /** The lease was already released. */
  | "NOT_HELD"
  /** The key has as many waiters as the store allows. */
  | "QUEUE_FULL"
  /** The request would wait for itself for ever. */
  | "DEADLOCK"
  /** An argument or option is outside its documented range. */
  | "INVALID_ARGUMENT"
  /** This store cannot do that, and the message says why. */
  | "UNSUPPORTED"
  /** The store is less durable than the lock demands. */
  | "DURABILITY_UNAVAILABLE"
  /** The store did not answer, cannot be reached, or cannot serve now. Retryable; nothing is known about who holds what. */
  | "STORE_UNAVAILABLE"
  /** The store answered with something that retrying does not mend. */
  | "STORE_FAILURE"
  /** The store does not permit this caller to do that. */
  | "UNAUTHORIZED"
  /** The client or the store was closed. */
  | "CLOSED"
  /** Storage has seen a newer fence than the one that this write came with. */
  | "STALE_FENCE";

export interface ErrorDetails {
  /** The key that the failed call was about. */
  readonly key?: string | undefined;
  /** What went wrong underneath, as the driver told it. */
  readonly cause?: unknown;
}

/** The one error that Holdfast throws. Tell failures apart by `code`, never by the message. */
export class HoldfastError extends Error {
  override readonly name: string = "HoldfastError";
  readonly code: ErrorCode;
  readonly key: string | undefined;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.code = code;
    this.key = details.key;
  }

  /** Whether asking again with the same claim id may succeed without anything being changed. */
  get retryable(): boolean {
    return this.code === "STORE_UNAVAILABLE";
  }

  /** Returns a HoldfastError as it is, and wraps anything else as `STORE_FAILURE` with its cause. */
  static from(error: unknown, key?: string): HoldfastError {
    if (error instanceof HoldfastError) return error;
    const reason = error instanceof Error ? error.message : String(error);
    return new HoldfastError("STORE_FAILURE", `The store failed: ${reason}.`, { key, cause: error });
  }
}

/** `waitMs` went by before the lock came free. The claim has left the queue. */
export class AcquireTimeoutError extends HoldfastError {
  override readonly name = "AcquireTimeoutError";

  constructor(key: string, waitMs: number) {
    const told =
      waitMs === 0
        ? `"${key}" is held, or other claims wait for it, and waitMs is 0.`
        : `"${key}" did not become free within ${waitMs} ms.`;
    super("ACQUIRE_TIMEOUT", `${told} Set a longer waitMs; locks.inspect shows the holder.`, { key });
  }
}

/** Why a lease was lost. */
export type LossReason =
  /** No renewal was confirmed before the deadline on this client's own clock. */
  | "expired"
  /** The store no longer knows the claim: it expired there, or was released by force. */
  | "gone"
  /** Another call with the same id has taken the claim over. */
  | "taken-over"
  /** The lease was held for `maxHoldMs`. */
  | "max-hold"
  /** The event loop stood still for the `maxBlockedMs` of the heartbeat's thread. */
  | "blocked"
  /** The lease object was garbage-collected without having been released. */
  | "abandoned"
  /** The client was closed. */
  | "closed";

const lossTexts: Record<LossReason, string> = {
  expired: "no renewal was confirmed before its deadline",
  gone: "the store no longer knows it (it expired there, or was released by force)",
  "taken-over": "another call with the same id has taken it over",
  "max-hold": "it was held for maxHoldMs",
  blocked: "the event loop stood still for maxBlockedMs",
  abandoned: "it was garbage-collected without having been released",
  closed: "the client was closed",
};

/** The lease can no longer be proven: stop what it protects. Also the reason with which `lease.signal` aborts. */
export class LeaseLostError extends HoldfastError {
  override readonly name = "LeaseLostError";
  readonly reason: LossReason;

  constructor(key: string, reason: LossReason, cause?: unknown) {
    super("LEASE_LOST", `The lease on "${key}" is lost: ${lossTexts[reason]}. Stop the work it protects.`, {
      key,
      cause,
    });
    this.reason = reason;
  }
}

/** The store did not answer, or could not serve. Not contention: who holds the lock is unknown. */
export class StoreUnavailableError extends HoldfastError {
  override readonly name = "StoreUnavailableError";

  constructor(message: string, details: ErrorDetails = {}) {
    super("STORE_UNAVAILABLE", message, details);
  }
}
