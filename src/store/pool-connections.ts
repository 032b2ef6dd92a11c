/**
 * Connections of an application's pool, one for each request.
 *
 * A proxy, a firewall or a dead host can drop a connection without a word, and TCP notices after a quarter of an hour. So:
 *
 * - A request that is given up destroys its connection.
 * - After that, a connection from before without an answer since is destroyed instead of used.
 * - A request that is given up before it has a connection ends the attempts to connect that are as old as itself.
 * - A connection that arrives too late for its request serves the next one, so the pool's queue does not grow during an outage.
 */
import { type Deferred, deferred, systemClock } from "../platform/index.ts";
import { type HoldfastError, StoreUnavailableError } from "./errors.ts";

/** A pool of some client library. */
export interface ConnectionPool<C extends object> {
  /** The server, in messages. */
  readonly product: string;
  /** Resolves to a connection whose later errors are handled. */
  connect(): Promise<C>;
  /** Why the connection must not be used, if there is a reason. */
  refusal?(connection: C): HoldfastError | undefined;
  /** An object that stays the same while the connection goes in and out of the pool. */
  identity(connection: C): object;
  /** When the connection was made, by the monotonic clock. `-Infinity`: before the store could notice. */
  madeMs(connection: C): number;
  /** The attempts to connect that are under way. */
  attempts(): readonly object[];
  endAttempt(attempt: object): void;
  release(connection: C): void;
  /** Closes the connection without waiting for the server. */
  destroy(connection: C): void;
}

export class PoolConnections<C extends object> {
  readonly #pool: ConnectionPool<C>;
  readonly #waiters = new Set<Deferred<C>>();
  /** Calls that the pool has not answered, never fewer than the waiters. */
  #asked = 0;
  #silentSinceMs = Number.NEGATIVE_INFINITY;
  readonly #heardMs = new WeakMap<object, number>();

  constructor(pool: ConnectionPool<C>) {
    this.#pool = pool;
  }

  /** Lends a connection to one request. If the request fails, its session may be in any state, so the connection is destroyed. */
  async use<R>(timeoutMs: number, request: (connection: C) => Promise<R>): Promise<R> {
    const askedMs = systemClock.monotonicMs();
    const connection = await this.take(timeoutMs);
    const sentMs = systemClock.monotonicMs();
    const leftMs = Math.max(0, askedMs + timeoutMs - sentMs);
    try {
      const reply = await within(leftMs, request(connection), () => {
        if (leftMs >= timeoutMs / 2) this.#silentSinceMs = Math.max(sentMs, this.#silentSinceMs);
        return this.#silence(timeoutMs);
      });
      this.#heardMs.set(this.#pool.identity(connection), systemClock.monotonicMs());
      this.#pool.release(connection);
      return reply;
    } catch (error) {
      this.#pool.destroy(connection);
      throw error;
    }
  }

  /** Resolves to a connection that the caller gives back to the pool or destroys. */
  take(timeoutMs: number): Promise<C> {
    const attempts = new Set(this.#pool.attempts());
    const waiter = deferred<C>();
    this.#waiters.add(waiter);
    this.#ask();
    // The pool may have begun an attempt for this request.
    for (const attempt of this.#pool.attempts()) attempts.add(attempt);
    return within(timeoutMs, waiter.promise, () => {
      this.#waiters.delete(waiter);
      for (const attempt of this.#pool.attempts()) if (attempts.has(attempt)) this.#pool.endAttempt(attempt);
      return this.#noConnection(timeoutMs);
    });
  }

  #ask(): void {
    if (this.#asked >= this.#waiters.size) return;
    this.#asked++;
    this.#pool.connect().then(
      (connection) => {
        this.#asked--;
        this.#lend(connection);
      },
      (error: unknown) => {
        this.#asked--;
        for (const waiter of this.#waiters) {
          if (this.#waiters.size <= this.#asked) break;
          this.#waiters.delete(waiter);
          waiter.reject(error);
        }
      },
    );
  }

  #lend(connection: C): void {
    if (this.#isStale(connection)) {
      this.#pool.destroy(connection);
      this.#ask();
      return;
    }
    const refusal = this.#pool.refusal?.(connection);
    if (refusal !== undefined) this.#pool.destroy(connection);
    const [waiter] = this.#waiters;
    if (waiter === undefined) {
      if (refusal === undefined) this.#pool.release(connection);
      return;
    }
    this.#waiters.delete(waiter);
    if (refusal === undefined) waiter.resolve(connection);
    else waiter.reject(refusal);
  }

  /** Whether the connection is from before the last silence and has not answered since. */
  #isStale(connection: C): boolean {
    if (this.#silentSinceMs === Number.NEGATIVE_INFINITY) return false;
    const heardMs = this.#heardMs.get(this.#pool.identity(connection)) ?? this.#pool.madeMs(connection);
    return heardMs <= this.#silentSinceMs;
  }

  #silence(timeoutMs: number): StoreUnavailableError {
    return new StoreUnavailableError(
      `${this.#pool.product} is unavailable: it did not answer within ${timeoutMs} ms. The result of the request is unknown.`,
    );
  }

  #noConnection(timeoutMs: number): StoreUnavailableError {
    return new StoreUnavailableError(
      `${this.#pool.product} is unavailable: the pool gave no connection within ${timeoutMs} ms. If it has connections, all of them are in use: raise the size of the pool.`,
    );
  }
}

/**
 * Fails requests over a single connection that has been silent for `timeoutMs`, until it answers. A single connection is never
 * replaced, so requests would pile up behind the first.
 */
export class SilenceGuard {
  readonly #timeoutMs: number;
  readonly #silent: () => StoreUnavailableError;
  #unanswered = 0;
  #heardMs = 0;

  constructor(timeoutMs: number, silent: () => StoreUnavailableError) {
    this.#timeoutMs = timeoutMs;
    this.#silent = silent;
  }

  async watch<R>(request: () => Promise<R>): Promise<R> {
    if (this.#unanswered === 0) this.#heardMs = systemClock.monotonicMs();
    else if (systemClock.monotonicMs() - this.#heardMs >= this.#timeoutMs) throw this.#silent();
    this.#unanswered++;
    try {
      return await request();
    } finally {
      this.#unanswered--;
      this.#heardMs = systemClock.monotonicMs();
    }
  }
}

async function within<R>(timeoutMs: number, answer: Promise<R>, tooLate: () => Error): Promise<R> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(tooLate()), timeoutMs);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
