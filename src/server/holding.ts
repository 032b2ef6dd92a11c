/**
 * One call that takes keys and keeps them: asking, waiting, held, and the end.
 *
 * The lease itself is the client library's, which renews it. This turns what becomes of it into events, and decides what
 * happens to the claim when the call ends. It is released when the caller says so, or when no caller can know it. Otherwise it is
 * left to its ttl, so that a caller whose connection broke finds it again.
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
import type { Asker } from "./audit.ts";
import type { GuardedStore } from "./guarded-store.ts";
import { Mailbox } from "./mailbox.ts";
import { stored } from "./ownership.ts";
import type { QueuePlaces } from "./queue-places.ts";

/** What the events of `Acquire` and `AcquireMany` have in common. */
export type HoldingEvent =
  | { readonly case: "waiting"; readonly key: string; readonly position: number; readonly length: number }
  | { readonly case: "acquired"; readonly leases: readonly Lease[] }
  | { readonly case: "heartbeat"; readonly expiresInMs: number }
  | { readonly case: "lost"; readonly key: string; readonly reason: wire.LossReason }
  | { readonly case: "failed"; readonly failure: ReturnType<typeof failureOf> };

/** By how much a time of expiry may seem to change between two looks at it, because the clock goes on between its readings. */
const CLOCK_JITTER_MS = 2;

/** Why a call ends from outside. */
type Ending = "gone" | "leaving" | "taken-over" | "released";

/** Errors that lie in the lock and not in the request or the store: they are events. */
const lockFailures = ["ACQUIRE_TIMEOUT", "QUEUE_FULL", "LEASE_LOST"];

export interface HoldingOptions {
  readonly terms: Terms;
  readonly id: string;
  readonly token: string;
  readonly store: GuardedStore;
  readonly asker: Asker;
  readonly places: QueuePlaces;
}

let holdings = 0;

export class Holding {
  /** A later call has a higher one. */
  readonly number = ++holdings;
  readonly id: string;
  readonly token: string;
  readonly terms: Terms;
  readonly asker: Asker;
  /** What the store knows the caller by. */
  owner = "";
  readonly #store: GuardedStore;
  readonly #places: QueuePlaces;
  readonly #mailbox = new Mailbox<HoldingEvent | "look">();
  readonly #abort = new AbortController();
  #leases: readonly Lease[] = [];
  /** Until when leases last that were left to the caller, on the monotonic clock. */
  #detachedUntilMs: readonly number[] | undefined;
  #acquiring: Promise<void> | undefined;
  /** Whether the caller has been sent its leases. */
  #told = false;
  #ending: Ending | undefined;
  #over = false;
  #unfollowPlace: (() => void) | undefined;

  constructor({ terms, id, token, store, asker, places }: HoldingOptions) {
    this.terms = terms;
    this.id = id;
    this.token = token;
    this.#places = places;
    this.#store = store;
    this.asker = asker;
  }

  /** The caller is gone. Resolves when nothing here is about its claims any more. */
  async disconnect(): Promise<void> {
    this.#end("gone");
    await this.#acquiring?.catch(() => {});
    await this.#finish();
  }

  /** The server stops. The caller goes on elsewhere. */
  leave(): void {
    this.#end("leaving");
  }

  /** Another call with the same id goes on with the claims. */
  handOver(): void {
    this.#end("taken-over");
  }

  /** Gives all of it back. Whether it was there. */
  async release(): Promise<boolean> {
    const leases = this.#leases;
    if (leases.length > 0) {
      const released = await Promise.all(leases.toReversed().map((lease) => lease.release()));
      this.#end("released");
      return released.every(Boolean);
    }
    this.#end("released");
    const refs = this.terms.keys.map(({ key }) => ({ key, id: this.id, token: this.token }));
    return (await this.#store.release(refs, this.asker)).some(Boolean);
  }

  /** What becomes of it. Throws where the request or the store is at fault. */
  async *events(locks: Locks): AsyncGenerator<HoldingEvent, void, void> {
    const acquiring = this.#acquire(locks);
    this.#acquiring = acquiring;
    // It may fail while the caller is slow to take an event; that is told when it asks for the next one.
    acquiring.catch(() => {});
    try {
      for (let event = await this.#mailbox.take(); event !== "look"; event = await this.#mailbox.take()) {
        yield event;
      }
      await acquiring;
      if (this.#leases.length === 0 || this.#ending === "gone") return;
      this.#told = true;
      if (this.terms.detached) this.#detach();
      yield { case: "acquired", leases: this.#leases };
      if (!this.terms.detached) yield* this.#hold();
    } finally {
      await this.disconnect();
    }
  }

  /** For how long a lease of this call lasts, in milliseconds from now. */
  expiresInMs(index: number): number {
    const untilMs = this.#detachedUntilMs?.[index];
    if (untilMs !== undefined) return Math.max(0, untilMs - performance.now());
    return this.#leases[index]?.expiresInMs ?? 0;
  }

  /** Before the caller hears of it: from now on only the caller prolongs it, and nothing here may take it back. */
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
        onWaiting: (key: string) => this.#followPlace(key),
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
      if (this.#ending !== undefined) return;
      if (!(error instanceof HoldfastError) || !lockFailures.includes(error.code)) throw error;
      this.#mailbox.put("failed", { case: "failed", failure: failureOf(error) });
    } finally {
      this.#unfollowPlace?.();
      this.#mailbox.put("look", "look");
      // A grant may come in the turn in which the call ends.
      if (this.#ending !== undefined) await this.#finish();
    }
  }

  /** Tells the place in the queue of the key that is waited for now, in place of another one. */
  #followPlace(key: string): void {
    const { id } = stored({ key, id: this.id }, this.asker.client);
    this.#unfollowPlace?.();
    this.#unfollowPlace = this.#places.follow(key, id, (position, length) => {
      this.#mailbox.put("waiting", { case: "waiting", key, position, length });
    });
  }

  async *#hold(): AsyncGenerator<HoldingEvent, void, void> {
    for (const lease of this.#leases) void this.#follow(lease);
    let toldUntilMs = this.#provenUntilMs();
    for (;;) {
      await this.#mailbox.take();
      const ended = this.#endingError();
      if (ended !== undefined) throw ended;
      if (this.#ending === "taken-over") {
        yield { case: "lost", key: this.#leases[0]?.key ?? "", reason: wire.LossReason.TAKEN_OVER };
      }
      if (this.#ending !== undefined) return;
      const lost = this.#leases.find((lease) => !lease.held);
      if (lost !== undefined) {
        const { released, lost: reason } = lost.state;
        // Several keys are wanted together: with one of them gone the others are of no use.
        await this.#releaseAll();
        if (!released) yield { case: "lost", key: lost.key, reason: lossReasons[reason ?? "gone"] };
        return;
      }
      const provenUntilMs = this.#provenUntilMs();
      if (provenUntilMs <= toldUntilMs + CLOCK_JITTER_MS) continue;
      toldUntilMs = provenUntilMs;
      yield { case: "heartbeat", expiresInMs: Math.max(0, provenUntilMs - performance.now()) };
    }
  }

  /** Wakes the call at every change of a lease. */
  async #follow(lease: Lease): Promise<void> {
    for await (const _ of lease.watch()) this.#mailbox.put("look", "look");
  }

  /** On the monotonic clock: a wall clock that is set back would stop the heartbeats. */
  #provenUntilMs(): number {
    return performance.now() + Math.min(...this.#leases.map((lease) => lease.expiresInMs));
  }

  #end(ending: Ending): void {
    if (this.#ending !== undefined || this.#over) return;
    this.#ending = ending;
    // At once, and not at the next event: a caller that is gone asks for none, and another call may be about to go on with the claims.
    void this.#finish();
    this.#abort.abort(new HoldfastError("CLOSED", "The call is over."));
    this.#mailbox.put("look", "look");
  }

  /** What the caller is told when the server ends the call. */
  #endingError(): HoldfastError | undefined {
    if (this.#ending !== "leaving") return undefined;
    return new StoreUnavailableError(
      this.#releasesAtEnd()
        ? "The server is stopping. Ask another server."
        : "The server is stopping. The claim stays in the store. Ask another server, with the same request id and token.",
    );
  }

  /** Nothing of a call that is over is renewed any more. */
  async #finish(): Promise<void> {
    this.#over = true;
    if (this.#releasesAtEnd()) await this.#releaseAll();
    else for (const lease of this.#leases) lease.detach();
  }

  #releasesAtEnd(): boolean {
    const { releaseOnDisconnect, detached, acquire } = this.terms;
    if (this.#ending === "taken-over" || this.#ending === "released") return false;
    const isAsked = this.#ending === "gone" && releaseOnDisconnect;
    if (this.#told) return isAsked && !detached;
    // With an id that was made here no caller asks for the claim again, which would only be in the way of others.
    return isAsked || acquire.id === undefined;
  }

  async #releaseAll(): Promise<void> {
    await Promise.all(this.#leases.toReversed().map((lease) => lease[Symbol.asyncDispose]()));
  }
}

/** Whether an error means that somebody else has the lock. */
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
