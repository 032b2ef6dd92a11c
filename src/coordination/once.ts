import type { Heartbeat, KeyLock, Lease, TryOptions, TryRunResult } from "../client/index.ts";
import { runBody } from "../client/index.ts";
import type { Durability, KeyStatus } from "../store/index.ts";

/** Options of `locks.once`. */
export interface OnceOptions {
  /** How long after the start of a run no other may start, by the store's clock. 10 to 86,400,000, which is a day. */
  readonly windowMs: number;
  /**
   * What a body that throws does to its window: `"keep"` leaves it closed, because the body may have done part of its work;
   * `"free"` opens it again, so that the next one who asks runs. Default "keep".
   */
  readonly onError?: "keep" | "free";
  /** What a try does when the store is unavailable, as of a lock. Default "throw". */
  readonly onUnavailable?: "throw" | "skip";
  /** The least durability that the store must have. Default: whatever the store has. */
  readonly durability?: Durability;
}

/** Something that is done at most once in a window of time, by whoever comes first. */
export interface Once {
  readonly key: string;
  /**
   * Runs the body if nobody has started one within the window, and says whether it did. The window stays closed when the body
   * ends, also when its process dies. The lease lasts as long as the window: a body that takes longer loses it, and its
   * signal aborts, before another can run.
   */
  tryRun<T>(body: (lease: Lease) => T | PromiseLike<T>, options?: TryOptions): Promise<TryRunResult<T>>;
  /** Whether the window is closed, and who closed it. `locks.forceRelease` opens it. */
  inspect(): Promise<KeyStatus>;
}

/** The claim of the key lives for the window, is not renewed, and is left where it is when the body ends. */
export class WindowedOnce implements Once {
  readonly key: string;
  readonly #heartbeat: Heartbeat;
  readonly #lock: KeyLock;
  readonly #onError: "keep" | "free";

  constructor(heartbeat: Heartbeat, lock: KeyLock, onError: "keep" | "free") {
    this.key = lock.key;
    this.#heartbeat = heartbeat;
    this.#lock = lock;
    this.#onError = onError;
  }

  async tryRun<T>(
    body: (lease: Lease) => T | PromiseLike<T>,
    options: TryOptions = {},
  ): Promise<TryRunResult<T>> {
    const lease = await this.#lock.attempt(options);
    if (typeof lease === "string") return { ran: false, reason: lease };
    lease.stay();
    // Granted when the client was being closed: then the claim is gone already, and the window open.
    lease.assertHeld();
    try {
      const value = await runBody(this.#heartbeat, [lease], () => body(lease));
      lease.detach();
      return { ran: true, value };
    } catch (error) {
      if (this.#onError === "free") await lease[Symbol.asyncDispose]();
      else lease.detach();
      throw error;
    }
  }

  inspect(): Promise<KeyStatus> {
    return this.#lock.inspect();
  }
}
