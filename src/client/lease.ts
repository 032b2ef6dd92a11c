import { type InspectOptions, inspect } from "node:util";
import type { ClaimRequest } from "../store/index.ts";
import { checkBoolean, checkOptionNames, checkTtl, HoldfastError, type LossReason } from "../store/index.ts";
import { endable } from "./endable.ts";
import { jsonable } from "./jsonable.ts";
import type { HoldfastWarning } from "./options.ts";

/** Options of `lease.release`. */
export interface ReleaseOptions {
  /** Throw `NOT_HELD` or `LEASE_LOST` instead of returning false when the lease was over already. Default false. */
  readonly mustHold?: boolean;
}

/** The state of a lease at one moment, as `lease.watch` tells it. */
export interface LeaseState {
  readonly id: string;
  readonly fence: bigint;
  /** When this client learned of the grant, on this machine's wall clock. */
  readonly acquiredAtMs: number;
  /** Until when the lease is proven, on this machine's wall clock. */
  readonly expiresAtMs: number;
  /** How long the lease is proven from now on, by the monotonic clock; 0 unless it is held. */
  readonly expiresInMs: number;
  readonly held: boolean;
  /** Why the lease is lost, if it is. With `reacquire` it may be held again later, with another id and fence. */
  readonly lost: LossReason | undefined;
  readonly released: boolean;
}

/** What a lease needs of its claim. */
export interface LeaseClaim {
  readonly request: ClaimRequest;
  readonly fence: bigint;
  readonly held: boolean;
  readonly signal: AbortSignal;
  readonly state: LeaseState;
  /** Whether `state` will not change any more. */
  readonly over: boolean;
  /** Whether the claim stays in the store until its ttl is over, unless it is released. */
  set stays(on: boolean);
  nextChange(): Promise<void>;
  assertHeld(): void;
  extend(ttlMs: number): Promise<void>;
  setRenewal(on: boolean): void;
  release(): Promise<boolean>;
  detach(): void;
  warn(code: HoldfastWarning["code"], message: string, cause?: unknown): void;
}

/**
 * A lock that is held, for as long as that can be proven.
 *
 * It renews itself until it is released or lost. Pass `signal` to whatever it protects, and `fence` to whatever is
 * written: the signal stops an honest holder in time, the fence stops one that was paused and does not know yet.
 *
 * @example
 * await using lease = await locks.mutex("nightly-report").acquire();
 * await fetch(url, { signal: lease.signal });
 */
export class Lease implements AsyncDisposable {
  readonly key: string;
  readonly #claim: LeaseClaim;

  /** @internal */
  constructor(claim: LeaseClaim) {
    this.key = claim.request.key;
    this.#claim = claim;
  }

  /** @internal */
  get claim(): LeaseClaim {
    return this.#claim;
  }

  /** @internal Whether it is held, or may be held again. */
  get isOpen(): boolean {
    return this.held || !this.#claim.over;
  }

  /** The claim's id. Changes when a lost lease was won again (`reacquire`). */
  get id(): string {
    return this.#claim.request.id;
  }

  /** The claim's secret. Whoever knows it can renew and release the lease from anywhere. */
  get token(): string {
    return this.#claim.request.token;
  }

  /** Grows with every grant of the key. Storage that remembers the highest one can refuse a stale holder. */
  get fence(): bigint {
    return this.#claim.fence;
  }

  /** The priority that the lock was asked for with. */
  get priority(): number {
    return this.#claim.request.priority;
  }

  /** When this client learned of the grant, in milliseconds of this machine's wall clock. For people and logs. */
  get acquiredAtMs(): number {
    return this.#claim.state.acquiredAtMs;
  }

  /** Until when the lease is proven, in milliseconds of this machine's wall clock. For people and logs. */
  get expiresAtMs(): number {
    return this.#claim.state.expiresAtMs;
  }

  /** How long the lease is proven from now on, by the monotonic clock, which nobody can set. 0 unless it is held. For decisions. */
  get expiresInMs(): number {
    return this.#claim.state.expiresInMs;
  }

  /** Whether the lease is proven at this moment, by the monotonic clock. Once false it stays so, but for `reacquire`. */
  get held(): boolean {
    return this.#claim.held;
  }

  /** Why the lease is lost; undefined while it is held and after a release. With `reacquire` it may be won again, with another fence. */
  get lost(): LossReason | undefined {
    return this.#claim.state.lost;
  }

  /** The state of the lease at one moment. */
  get state(): LeaseState {
    return jsonable(this.#claim.state);
  }

  /** Aborts with a LeaseLostError as soon as the lease can no longer be proven. Not on release. */
  get signal(): AbortSignal {
    return this.#claim.signal;
  }

  /** Throws LeaseLostError, or a HoldfastError `NOT_HELD` after a release, unless the lease is held. */
  assertHeld(): void {
    this.#claim.assertHeld();
  }

  /**
   * Makes the lease last at least `ttlMs` from now, once, but not beyond `maxHoldMs`, and resolves to its new end, as `expiresAtMs` says it.
   * Never shortens it. Rejects with `LEASE_LOST` or `NOT_HELD` when it is over, with `STORE_UNAVAILABLE` when the store does not answer, and at once with what the store refuses it for, such as
   * `INVALID_ARGUMENT`; after either of these two the lease goes on as it was.
   */
  async extend(ttlMs: number): Promise<number> {
    checkTtl(ttlMs);
    await this.#claim.extend(ttlMs);
    return this.expiresAtMs;
  }

  /**
   * Stops renewing the lease: it ends when its time is up, unless `resumeRenewal` or `extend` comes first. Then it is lost, and not won again
   * (`reacquire`). Does nothing to a lease that is over.
   */
  pauseRenewal(): void {
    this.#claim.setRenewal(false);
  }

  /** Renews the lease at once and from then on, also one that was taken with `renew: false`. Throws like `assertHeld` if it is over. */
  resumeRenewal(): void {
    this.#claim.setRenewal(true);
  }

  /**
   * Gives the lock back, and stops renewing it first. Returns whether it was still held: false when it was lost or
   * released before, so it is safe to call twice. Never frees somebody else's lock. Rejects with
   * `STORE_UNAVAILABLE` when the store does not confirm in time; the ttl then ends the lease.
   */
  release(options?: ReleaseOptions): Promise<boolean> {
    return options === undefined ? this.#claim.release() : this.#releaseAsAsked(options);
  }

  /**
   * Stops renewing the lease, and leaves it in the store until its ttl is over. It is no longer held here; whoever asks with the
   * same id and token gets it back as it is, in another process too.
   */
  detach(): void {
    this.#claim.detach();
  }

  /** @internal Only `release` ends the claim before its time: neither closing the client does, nor that it is lost here. */
  stay(): void {
    this.#claim.stays = true;
  }

  /**
   * The present state, then every change: renewed, lost, won again, released. Ends when nothing can change any more.
   * Any number of watchers go at their own pace; one that is slow misses states in between, never the last.
   */
  watch(): AsyncGenerator<LeaseState, void, void> {
    const claim = this.#claim;
    return endable(async function* (waiting) {
      while (!waiting.over) {
        // First the state: to look at it is to notice that the time is up, which changes the rest.
        const { state, over } = claim;
        const change = claim.nextChange();
        yield jsonable(state);
        if (over) return;
        void change.then(waiting.wake);
        await waiting.pause();
      }
    });
  }

  /** What `console.log` shows. Not the token, which is a secret. */
  [inspect.custom](_: number, options: InspectOptions): string {
    const { key, id, fence, held, expiresInMs } = this;
    return `Lease ${inspect({ key, id, fence, held, expiresInMs }, options)}`;
  }

  /** Releases. A failure is a warning and not an error, so that it cannot hide one of the body's. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.#claim.release();
    } catch (error) {
      this.#claim.warn(
        "RELEASE_FAILED",
        `"${this.key}" could not be released. The lease ends with its ttl.`,
        error,
      );
    }
  }

  async #releaseAsAsked(options: ReleaseOptions): Promise<boolean> {
    checkOptionNames("release", options, { mustHold: true });
    const { mustHold = false } = options;
    if (!checkBoolean("mustHold", mustHold)) return this.#claim.release();
    try {
      this.assertHeld();
    } catch (error) {
      // It may be about to be won again (`reacquire`), and then nobody would ever release it.
      await this[Symbol.asyncDispose]();
      throw error;
    }
    if (await this.#claim.release()) return true;
    throw new HoldfastError(
      "NOT_HELD",
      `The lease on "${this.key}" had already ended when release was called.`,
      {
        key: this.key,
      },
    );
  }
}
