import { onAbort } from "../platform/index.ts";
import type { KeyStatus } from "../store/index.ts";
import { bounds, checkInteger, HoldfastError, NewRequest } from "../store/index.ts";
import { runBody } from "./body.ts";
import { closedError } from "./claim-errors.ts";
import type { AcquireResult } from "./claim-outcomes.ts";
import { ClientClaim } from "./client-claim.ts";
import type { Heartbeat } from "./heartbeat.ts";
import { jsonable } from "./jsonable.ts";
import type { Lease } from "./lease.ts";
import { Nesting } from "./nesting.ts";
import {
  type AcquireOptions,
  checkAcquireOptions,
  checkTryOptions,
  type LockSettings,
  leavesClaim,
  type PermitOptions,
  type TryOptions,
} from "./options.ts";
import { SharedClaim } from "./shared-claim.ts";

/** What a `tryRun` came to. */
export type TryRunResult<T> =
  | { readonly ran: true; readonly value: T }
  | {
      readonly ran: false;
      /** `"contended"`: somebody else has it. `"unavailable"`: nobody knows (only with `onUnavailable: "skip"`). */
      readonly reason: "contended" | "unavailable";
    };

/** The verbs of everything that can be locked. `L` is what one holds: a lease, or several. */
export interface Lockable<L, Try, Acquire> {
  /** Takes it if that is possible at once; `null` if not. Contention is a value, only trouble is an error. */
  tryAcquire(options?: Try): Promise<L | null>;
  /** Waits in the queue until it is held. Throws AcquireTimeoutError after `waitMs`. */
  acquire(options?: Acquire): Promise<L>;
  /** Runs the body only if the lock is free at once, and says whether it did. Releases it in any case. */
  tryRun<T>(body: (lease: L) => T | PromiseLike<T>, options?: Try): Promise<TryRunResult<T>>;
  /** Waits, runs the body, releases, also when the body throws. Resolves to what the body returns, also if the lease was lost meanwhile. */
  run<T>(body: (lease: L) => T | PromiseLike<T>, options?: Acquire): Promise<T>;
}

/** One side of a lock on one key. */
export interface Lock extends Lockable<Lease, TryOptions, AcquireOptions> {
  readonly key: string;
  /** Who holds the key and who waits for it. */
  inspect(): Promise<KeyStatus>;
}

/** A lock that up to `limit` permits' worth of leases hold at once. */
export interface Semaphore
  extends Lockable<Lease, TryOptions & PermitOptions, AcquireOptions & PermitOptions> {
  readonly key: string;
  readonly limit: number;
  /** Who holds the key and who waits for it. */
  inspect(): Promise<KeyStatus>;
}

/** A lock that many readers or one writer hold. Each side has all the verbs. */
export interface RwLock {
  readonly key: string;
  readonly read: Lock;
  readonly write: Lock;
}

/** Reasons for which a lock was not acquired, besides trouble. */
type Miss = "contended" | "unavailable";

const noOptions = {};

/** The one implementation: mutexes, readers, writers and semaphores differ in weight and limit alone. */
export class KeyLock implements Lock, Semaphore {
  readonly key: string;
  readonly limit: number;
  readonly #heartbeat: Heartbeat;
  readonly #settings: LockSettings;

  constructor(heartbeat: Heartbeat, key: string, limit: number, settings: LockSettings) {
    this.#heartbeat = heartbeat;
    this.key = key;
    this.limit = limit;
    this.#settings = settings;
  }

  /** @internal Whether a lost lease of this lock is won again. */
  get reacquires(): boolean {
    return this.#settings.reacquire;
  }

  /** @internal Whether bodies that run within each other share a claim. */
  get reentrant(): boolean {
    return this.#settings.reentrant;
  }

  async tryAcquire(options: TryOptions & PermitOptions = noOptions): Promise<Lease | null> {
    const lease = await this.attempt(options);
    return typeof lease === "string" ? null : lease;
  }

  /** Not an async function, whose promise and place to go on at would be a seventh of the garbage of a lock cycle. */
  acquire(options: AcquireOptions & PermitOptions = noOptions): Promise<Lease> {
    try {
      if (options !== noOptions) checkAcquireOptions(options);
      const { waitMs = Number.POSITIVE_INFINITY, signal, onWaiting } = options;
      const claim = this.#newClaim(options, waitMs);
      const nesting = Nesting.of(this.#heartbeat, this, options);
      if (nesting !== undefined) {
        const shared = nesting.share();
        if (shared !== undefined) return Promise.resolve(shared);
        if (nesting.neverFits) throw nesting.error();
        if (nesting.mustNotWait) return this.#acquireAtOnce(nesting, options);
      }
      const ask = () => claim.acquire(waitMs, onWaiting);
      const acquired = signal === undefined ? ask() : cancellable(claim, signal, ask, options);
      return this.#settings.reentrant ? acquired.then(SharedClaim.first) : acquired;
    } catch (error) {
      return Promise.reject(error);
    }
  }

  async tryRun<T>(
    body: (lease: Lease) => T | PromiseLike<T>,
    options: TryOptions & PermitOptions = noOptions,
  ): Promise<TryRunResult<T>> {
    const lease = await this.attempt(options);
    if (typeof lease === "string") return { ran: false, reason: lease };
    return { ran: true, value: await runAndRelease(this.#heartbeat, [lease], lease, body) };
  }

  async run<T>(
    body: (lease: Lease) => T | PromiseLike<T>,
    options: AcquireOptions & PermitOptions = noOptions,
  ): Promise<T> {
    const lease = await this.acquire(options);
    return runAndRelease(this.#heartbeat, [lease], lease, body);
  }

  async inspect(): Promise<KeyStatus> {
    return shown(await lookAtKey(this.#heartbeat, this.key, DEFAULT_SHOWN_CLAIMS));
  }

  /** @internal A try that says why it came to nothing. */
  async attempt(options: TryOptions & PermitOptions): Promise<Lease | Miss> {
    if (options !== noOptions) checkTryOptions(options);
    const claim = this.#newClaim(options, 0);
    const shared = Nesting.of(this.#heartbeat, this, options)?.share();
    if (shared !== undefined) return shared;
    try {
      return await this.#try(claim, options);
    } catch (error) {
      if (this.#settings.onUnavailable === "throw" || !isOutage(error)) throw error;
      this.#heartbeat.stats.skipped++;
      claim.warn(
        "SKIPPED_UNAVAILABLE",
        `"${this.key}" was not acquired, because the store is unavailable.`,
        error,
      );
      return "unavailable";
    }
  }

  /** @internal Throws `DEADLOCK` if a call from here would wait for a body that it comes from. */
  assertNoDeadlock(): void {
    const nesting = Nesting.of(this.#heartbeat, this, noOptions);
    if (nesting?.neverFits === true) throw nesting.error();
  }

  async #acquireAtOnce(nesting: Nesting, options: AcquireOptions & PermitOptions): Promise<Lease> {
    const lease = await this.#try(this.#newClaim(options, 0), options);
    if (lease === "contended") throw nesting.error();
    return lease;
  }

  async #try(claim: ClientClaim, options: AcquireOptions): Promise<AcquireResult> {
    const { signal } = options;
    const ask = () => claim.tryAcquire();
    const result = await (signal === undefined ? ask() : cancellable(claim, signal, ask, options));
    return result !== "contended" && this.#settings.reentrant ? SharedClaim.first(result) : result;
  }

  #newClaim(options: AcquireOptions & PermitOptions, waitMs: number): ClientClaim {
    const heartbeat = this.#heartbeat;
    if (heartbeat.closing) throw closedError(this.key);
    options.signal?.throwIfAborted();
    if (options.permits !== undefined) {
      checkInteger("permits", options.permits, 1, Math.min(this.limit, bounds.maxPermits));
    }
    const settings = this.#settings;
    const request = new NewRequest(this, heartbeat, settings, options, waitMs > 0);
    return new ClientClaim(heartbeat, settings, request, options.id !== undefined);
  }
}

/** How many claims of a key are shown when nobody says otherwise. */
export const DEFAULT_SHOWN_CLAIMS = 100;

export async function lookAtKey(heartbeat: Heartbeat, key: string, maxClaims: number): Promise<KeyStatus> {
  if (heartbeat.closing) throw closedError(key);
  const { keys } = await heartbeat.answer(() => heartbeat.store.look({ key, maxClaims }), key);
  const [status] = keys;
  if (status === undefined)
    throw new HoldfastError("STORE_FAILURE", `The store gave no answer for "${key}".`);
  return status;
}

/** The same for an application, which may want to write it as JSON. */
export function shown(status: KeyStatus): KeyStatus {
  return jsonable({ ...status, held: status.held.map(jsonable), waiting: status.waiting.map(jsonable) });
}

/** Runs a body with what it holds, and gives that back whatever the body does. */
export async function runAndRelease<L extends AsyncDisposable, T>(
  heartbeat: Heartbeat,
  leases: readonly Lease[],
  held: L,
  body: (held: L) => T | PromiseLike<T>,
): Promise<T> {
  try {
    return await runBody(heartbeat, leases, () => body(held));
  } finally {
    await held[Symbol.asyncDispose]();
  }
}

async function cancellable<T>(
  claim: ClientClaim,
  signal: AbortSignal,
  start: () => Promise<T>,
  options: AcquireOptions,
): Promise<T> {
  const listenNoMore = onAbort(signal, () => claim.cancel(signal.reason, leavesClaim(options)));
  try {
    return await start();
  } finally {
    listenNoMore();
  }
}

export function isOutage(error: unknown): boolean {
  return error instanceof HoldfastError && error.code === "STORE_UNAVAILABLE";
}
