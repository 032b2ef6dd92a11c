/**
 * One call that acquires keys and keeps them. The client library has the leases and renews them; this turns their changes into
 * events, and decides about the claims when the call ends.
 *
 * A claim is released if the caller asks for that, or if no caller can know the claim. Otherwise it stays until its ttl, so
 * that a caller whose connection broke finds it again.
 */
import type { Lease, Locks } from "../client/index.ts";
import { failureOf, locks as wire } from "../protocol/index.ts";
import {
  AcquireTimeoutError,
  HoldfastError,
  type LossReason,
  StoreUnavailableError,
} from "../store/index.ts";
import { lockOf, permitsOf, type Terms } from "./acquire-terms.ts";
import type { Caller } from "./callers.ts";
import { EventQueue } from "./event-queue.ts";
import type { GuardedStore } from "./guarded-store.ts";
import { stored } from "./ownership.ts";
import type { QueuePositions } from "./queue-positions.ts";

/** An event of `Acquire` or `AcquireMany`. */
export type AcquireEvent =
  | { readonly case: "waiting"; readonly key: string; readonly position: number; readonly length: number }
  | { readonly case: "acquired"; readonly leases: readonly Lease[] }
  | { readonly case: "heartbeat"; readonly expiresInMs: number }
  | { readonly case: "lost"; readonly key: string; readonly reason: wire.LossReason }
  | { readonly case: "failed"; readonly failure: ReturnType<typeof failureOf> };

/** The clock advances between two readings, so a time of expiry that did not change may seem this much later. */
const CLOCK_JITTER_MS = 2;

/** The reason for ending a call before its leases end. */
type EndReason = "gone" | "leaving" | "taken-over" | "released";

/** Errors that are sent as events. Errors of the request or the store end the call with an error instead. */
const lockFailures = ["ACQUIRE_TIMEOUT", "QUEUE_FULL", "LEASE_LOST"];

export interface AcquireCallOptions {
  readonly terms: Terms;
  readonly id: string;
  readonly token: string;
  readonly store: GuardedStore;
  readonly caller: Caller;
  readonly positions: QueuePositions;
}

let callCount = 0;

export class AcquireCall {
  /** Later calls have higher numbers. */
  readonly number = ++callCount;
  readonly id: string;
  readonly token: string;
  readonly terms: Terms;
  readonly caller: Caller;
  /** The owner of its claims in the store. */
  owner = "";
  readonly #store: GuardedStore;
  readonly #positions: QueuePositions;
  readonly #events = new EventQueue<AcquireEvent | "changed">();
  readonly #abort = new AbortController();
  #leases: readonly Lease[] = [];
  /** The ends of detached leases, on the monotonic clock. */
  #detachedUntilMs: readonly number[] | undefined;
  #acquiring: Promise<void> | undefined;
  /** Whether the leases were sent to the caller. */
  #isSent = false;
  #endReason: EndReason | undefined;
  #isOver = false;
  #unfollowPosition: (() => void) | undefined;

  constructor({ terms, id, token, store, caller, positions }: AcquireCallOptions) {
    this.terms = terms;
    this.id = id;
    this.token = token;
    this.caller = caller;
    this.#store = store;
    this.#positions = positions;
  }

  /** The caller is gone. Resolves when the call does nothing more with its claims. */
  async disconnect(): Promise<void> {
    this.#end("gone");
    await this.#acquiring?.catch(() => {});
    await this.#finish();
  }

  /** The server stops. */
  leave(): void {
    this.#end("leaving");
  }

  /** Another call with the same id has taken over the claims. */
  handOver(): void {
    this.#end("taken-over");
  }

  /** Releases all keys. Returns whether they were still held. */
  async release(): Promise<boolean> {
    const leases = this.#leases;
    if (leases.length > 0) {
      const released = await Promise.all(leases.toReversed().map((lease) => lease.release()));
      this.#end("released");
      return released.every(Boolean);
    }
    this.#end("released");
    const refs = this.terms.keys.map(({ key }) => ({ key, id: this.id, token: this.token }));
    return (await this.#store.release(refs, this.caller)).some(Boolean);
  }

  /** Acquires, and yields the events of the call. Throws errors of the request and the store. */
  async *events(locks: Locks): AsyncGenerator<AcquireEvent, void, void> {
    const acquiring = this.#acquire(locks);
    this.#acquiring = acquiring;
    // A failure while the caller is slow to take an event is thrown when it asks for the next one.
    acquiring.catch(() => {});
    try {
      for (let event = await this.#events.take(); event !== "changed"; event = await this.#events.take()) {
        yield event;
      }
      await acquiring;
      if (this.#leases.length === 0 || this.#endReason === "gone") return;
      this.#isSent = true;
      if (this.terms.detached) this.#detach();
      yield { case: "acquired", leases: this.#leases };
      if (!this.terms.detached) yield* this.#hold();
    } finally {
      await this.disconnect();
    }
  }

  /** The time that a lease of this call still has. */
  expiresInMs(index: number): number {
    const untilMs = this.#detachedUntilMs?.[index];
    if (untilMs !== undefined) return Math.max(0, untilMs - performance.now());
    return this.#leases[index]?.expiresInMs ?? 0;
  }

  /** Leaves the leases to the caller. This precedes the event, since from then on the server must not release them. */
  #detach(): void {
    const nowMs = performance.now();
    this.#detachedUntilMs = this.#leases.map((lease) => nowMs + lease.expiresInMs);
    for (const lease of this.#leases) lease.detach();
  }

  async #acquire(locks: Locks): Promise<void> {
    const { terms } = this;
    try {
      const options = {
        ...terms.acquire,
        id: this.id,
        token: this.token,
        signal: this.#abort.signal,
        detachOnAbort: () => !this.#releasesAtEnd(),
        onWaiting: (key: string) => this.#followPosition(key),
      };
      const [only] = terms.keys;
      if (terms.keys.length === 1 && only !== undefined) {
        const lock = lockOf(locks, only, terms.lock);
        this.#leases = [await lock.acquire({ ...options, ...permitsOf(only) })];
      } else {
        const group = locks.all(terms.keys.map((key) => lockOf(locks, key, terms.lock)));
        this.#leases = (await group.acquire(options)).leases;
      }
    } catch (error) {
      const ended = this.#endingError();
      if (ended !== undefined) throw ended;
      if (this.#endReason !== undefined) return;
      if (!(error instanceof HoldfastError) || !lockFailures.includes(error.code)) throw error;
      this.#events.put("failed", { case: "failed", failure: failureOf(error) });
    } finally {
      this.#unfollowPosition?.();
      this.#events.put("changed", "changed");
      // The store may grant after the call has ended.
      if (this.#endReason !== undefined) await this.#finish();
    }
  }

  /** Sends the position in the queue of the key that the call waits for now. Replaces the previous key. */
  #followPosition(key: string): void {
    const { id } = stored({ key, id: this.id }, this.caller.client);
    this.#unfollowPosition?.();
    this.#unfollowPosition = this.#positions.follow(key, id, (position, length) => {
      this.#events.put("waiting", { case: "waiting", key, position, length });
    });
  }

  async *#hold(): AsyncGenerator<AcquireEvent, void, void> {
    for (const lease of this.#leases) void this.#follow(lease);
    let sentUntilMs = this.#provenUntilMs();
    for (;;) {
      await this.#events.take();
      const ended = this.#endingError();
      if (ended !== undefined) throw ended;
      if (this.#endReason === "taken-over") {
        yield { case: "lost", key: this.#leases[0]?.key ?? "", reason: wire.LossReason.TAKEN_OVER };
      }
      if (this.#endReason !== undefined) return;
      const lost = this.#leases.find((lease) => !lease.held);
      if (lost !== undefined) {
        const { released, lost: reason } = lost.state;
        // The keys of a call are held together or not at all.
        await this.#releaseAll();
        if (!released) yield { case: "lost", key: lost.key, reason: lossReasons[reason ?? "gone"] };
        return;
      }
      const provenUntilMs = this.#provenUntilMs();
      if (provenUntilMs <= sentUntilMs + CLOCK_JITTER_MS) continue;
      sentUntilMs = provenUntilMs;
      yield { case: "heartbeat", expiresInMs: Math.max(0, provenUntilMs - performance.now()) };
    }
  }

  /** Wakes the call after every change of a lease. */
  async #follow(lease: Lease): Promise<void> {
    for await (const _ of lease.watch()) this.#events.put("changed", "changed");
  }

  /** On the monotonic clock: a wall clock that is set back would stop the heartbeat events. */
  #provenUntilMs(): number {
    return performance.now() + Math.min(...this.#leases.map((lease) => lease.expiresInMs));
  }

  #end(reason: EndReason): void {
    if (this.#endReason !== undefined || this.#isOver) return;
    this.#endReason = reason;
    // Not at the next event: a caller that is gone asks for none, and another call may be about to use the claims.
    void this.#finish();
    this.#abort.abort(new HoldfastError("CLOSED", "The call is over."));
    this.#events.put("changed", "changed");
  }

  /** The error for the caller if the server stops. */
  #endingError(): HoldfastError | undefined {
    if (this.#endReason !== "leaving") return undefined;
    return new StoreUnavailableError(
      this.#releasesAtEnd()
        ? "The server is stopping. Ask another server."
        : "The server is stopping. The claim stays in the store. Ask another server, with the same request id and token.",
    );
  }

  /** Stops renewing, and releases the claims or leaves them to the caller. */
  async #finish(): Promise<void> {
    this.#isOver = true;
    if (this.#releasesAtEnd()) await this.#releaseAll();
    else for (const lease of this.#leases) lease.detach();
  }

  #releasesAtEnd(): boolean {
    const { releaseOnDisconnect, detached, acquire } = this.terms;
    if (this.#endReason === "taken-over" || this.#endReason === "released") return false;
    const isAsked = this.#endReason === "gone" && releaseOnDisconnect;
    if (this.#isSent) return isAsked && !detached;
    // No caller can ask again for a claim whose id the server made up. It would only block others.
    return isAsked || acquire.id === undefined;
  }

  async #releaseAll(): Promise<void> {
    await Promise.all(this.#leases.toReversed().map((lease) => lease[Symbol.asyncDispose]()));
  }
}

/** Whether the lock was not acquired because other claims hold it. */
export function isContention(failure: { readonly code: number }): boolean {
  return failure.code === failureOf(new AcquireTimeoutError("", 0)).code;
}

const lossReasons: Readonly<Record<LossReason, wire.LossReason>> = {
  expired: wire.LossReason.EXPIRED,
  gone: wire.LossReason.GONE,
  "taken-over": wire.LossReason.TAKEN_OVER,
  "max-hold": wire.LossReason.EXPIRED,
  blocked: wire.LossReason.EXPIRED,
  abandoned: wire.LossReason.EXPIRED,
  closed: wire.LossReason.EXPIRED,
};
