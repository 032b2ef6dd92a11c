/**
 * One claim of this client, from the first request to the end: asking, waiting, held, leaving, ended.
 *
 * It talks to the store through its client's heartbeat, and decides what every answer, failure and moment means. Three
 * rules carry the safety of it all:
 *
 * - A held answer proves the lease until `expiresInMs` after its request was *sent*, less the drift of clocks, on this
 *   machine's monotonic clock. The store cannot give the key to anybody else before that. Past it the lease is lost,
 *   for good, whatever answer comes later.
 * - A pushed grant proves it as well, until the end of the claim's life as the latest waiting answer told it, if its fence
 *   is above the one that came with that answer: then the grant was made after it. Not where the application chose the id,
 *   which another call may share. See docs/decisions/0007.
 * - A claim whose end has begun sends nothing but its release. An answer that comes too late, saying that the store
 *   gave it the claim after all, is answered with another release.
 */

import {
  type Deadline,
  type Deferred,
  deferred,
  earliest,
  hasCome,
  noLaterThan,
  noSoonerThan,
} from "../platform/index.ts";
import type {
  AcquireAnswer,
  ClaimRequest,
  HeldAnswer,
  RefusalReason,
  RenewAnswer,
  RenewRef,
  WaitingAnswer,
} from "../store/index.ts";
import {
  AcquireTimeoutError,
  acquireFrom,
  HoldfastError,
  isSound,
  LeaseLostError,
  type LossReason,
  newClaimIds,
  releaseFrom,
} from "../store/index.ts";
import { UNTRACKED } from "./agenda.ts";
import type { Caller, OnWaiting, Verdict } from "./caller.ts";
import {
  closedError,
  notHeldError,
  refusalError,
  takenOverError,
  tooLateError,
  unavailableError,
  unreleasedText,
  unsoundError,
} from "./claim-errors.ts";
import { FIRST_RETRY_MS, GOODBYE_MS, MIN_ATTEMPTS, NEVER, STORE_TICK_MS } from "./claim-timing.ts";
import type { CancelReason, EventClaim } from "./events.ts";
import { Extensions } from "./extensions.ts";
import type { Heartbeat } from "./heartbeat.ts";
import { Lease, type LeaseState } from "./lease.ts";
import type { HoldfastWarning, LockSettings } from "./options.ts";
import type { KeptClaim, StandbyHeartbeat } from "./standby.ts";
import { Wait } from "./wait.ts";

type Phase = "asking" | "waiting" | "held" | "leaving" | "ended";

/** Stands for a lease that the registry at the end of this file watches. */
const WATCHED = Symbol("watched");

/** The one goodbye to the store. */
interface Departure extends Deferred<boolean> {
  readonly wasHeld: boolean;
}

const no = () => false;

export class LiveClaim {
  request: ClaimRequest;
  fence = 0n;
  /** When the heartbeat looks at this claim next, no later than it is due. */
  wakeMs = 0;
  /** The place in the heartbeat's agenda. */
  slot = UNTRACKED;
  isFar = false;
  /** Whether the claim stays in the store until its ttl is over, also when time is up here or the client closes. */
  stays = false;
  /** What stands for this claim in events, once there was one that somebody listened to. */
  subject: EventClaim | undefined = undefined;
  /** When the latest acquire request was sent. Answers to older heartbeats are out of date. */
  askedMs = 0;
  /** When the latest grant was learnt of. */
  heldSinceMs = 0;
  /** How many requests in a row have not even failed. */
  silences = 0;
  /** `heldSinceMs` on the wall clock. Computed once a grant, so that every read returns the same. */
  #acquiredAtMs: number | undefined;

  readonly #heartbeat: Heartbeat;
  readonly #settings: LockSettings;
  #namedByCaller: boolean;
  /** Whether the lease renews itself: as its lock says, until the application stops or starts that. */
  #renews: boolean;
  #phase: Phase = "asking";
  /** Until when the store surely keeps the claim, in whole milliseconds. While it waits, that is not yet a lease. */
  #provenUntilMs = 0;
  #holdUntilMs: Deadline;
  /** When asking, waiting or leaving ends by itself. */
  #giveUpMs: Deadline;
  /** When to ask, renew or release next, if no answer comes before. */
  #attemptMs: Deadline;
  /** Whether that is a heartbeat like any other, which may go out a little early to travel with others. */
  #attemptIsHeartbeat = false;
  /** What was heard of its place in the queue, until it is held. */
  #wait: Wait | undefined;
  /** What another thread finds out about the lease, where one looks after it too. */
  #kept: KeptClaim | undefined;
  /** Since when the store has owed an answer, and how often it was asked since. */
  #unansweredSinceMs: Deadline;
  #attempts = 0;
  #lastError: unknown;
  #keepsAlive = false;
  #loss: LeaseLostError | undefined;
  #released = false;
  /** Whether the claim was left to somebody else, so that not even a late answer is a reason to take it back. */
  #detached = false;
  #caller: Caller | undefined;
  #departure: Departure | undefined;
  #controller: AbortController | undefined;
  #extensions: Extensions | undefined;
  #change: Deferred<void> | undefined;
  #lease: object | typeof WATCHED | undefined;

  constructor(heartbeat: Heartbeat, settings: LockSettings, request: ClaimRequest, namedByCaller: boolean) {
    this.#heartbeat = heartbeat;
    this.#settings = settings;
    this.#renews = settings.renew;
    this.request = request;
    this.#namedByCaller = namedByCaller;
  }

  /** When something is due next. */
  get dueMs(): number {
    return earliest(this.#attemptMs, this.#limit()) ?? NEVER;
  }

  /** How much earlier than due it may be done, so that heartbeats travel together. */
  get earlyMs(): number {
    return this.#attemptIsHeartbeat && this.dueMs === this.#attemptMs ? this.#settings.renewEveryMs / 40 : 0;
  }

  /** Whether there has been a lease. From then on there is no caller left to give up towards. */
  get #everHeld(): boolean {
    return this.fence !== 0n;
  }

  /** Whether the process stays alive until the claim is held. */
  get #isAwaited(): boolean {
    return !this.#everHeld || this.#settings.keepProcessAlive;
  }

  // What the application asks for, through Lock and Lease.

  /** Asks the store for what is free at once. */
  tryAcquire(): Promise<Verdict> {
    return this.#start(0, true, undefined);
  }

  /** Asks the store, and waits in its queue for up to `waitMs` if the request says so. Rejects when that is over. */
  acquire(waitMs: number, onWaiting: OnWaiting): Promise<Lease> {
    return this.#start(waitMs, false, onWaiting) as Promise<Lease>;
  }

  #start(waitMs: number, isTry: boolean, onWaiting: OnWaiting): Promise<Verdict> {
    const nowMs = this.#now();
    if (this.#namedByCaller) this.#heartbeat.reserve(this.request);
    // A wait of 0 is a try: it waits for the store's answer, not for the lock.
    if (this.request.wait) this.#giveUpMs = noSoonerThan(nowMs + waitMs);
    const { promise, resolve, reject } = deferred<Verdict>();
    this.#caller = { resolve, reject, waitMs, isTry, onWaiting };
    this.#ask(nowMs);
    this.#heartbeat.report.asked(this, waitMs, false);
    return promise;
  }

  /**
   * Gives up asking or waiting; the acquire rejects with the reason once the claim is gone, or at once when it is to stay where it
   * is. Too late once held.
   */
  cancel(reason: unknown, detach: boolean): void {
    if (this.#phase !== "asking" && this.#phase !== "waiting") return;
    if (!detach) {
      this.#giveUp(reason, "signal");
      return;
    }
    this.detach();
    this.#caller?.reject(reason);
  }

  /** Ends this client's part in the claim, and leaves the claim to its ttl or to whoever goes on with it. */
  detach(): void {
    if (this.over) return;
    const wasHeld = this.#phase === "held";
    this.#detached = true;
    this.#released = true;
    this.#extensions?.end(notHeldError(this.request.key));
    this.#end();
    if (wasHeld) this.#heartbeat.report.detached(this);
    else this.#heartbeat.report.cancelled(this, "detached", this.#everHeld);
  }

  get held(): boolean {
    return this.#expireIfOverdue(this.#now()) === "held";
  }

  get signal(): AbortSignal {
    this.#expireIfOverdue(this.#now());
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      // Also while a closing client still takes its leave of the store, which aborts only what exists by then.
      const lost = this.over && !this.#released && this.#loss !== undefined;
      if (lost) this.#controller.abort(this.#loss);
    }
    return this.#controller.signal;
  }

  get state(): LeaseState {
    const nowMs = this.#now();
    const held = this.#expireIfOverdue(nowMs) === "held";
    const untilMs = Math.min(this.#provenUntilMs, this.#holdUntilMs ?? NEVER);
    const wallMs = this.#heartbeat.clock.wallMs();
    this.#acquiredAtMs ??= Math.round(wallMs + this.heldSinceMs - nowMs);
    return {
      id: this.request.id,
      fence: this.fence,
      acquiredAtMs: this.#acquiredAtMs,
      expiresAtMs: wallMs + untilMs - nowMs,
      expiresInMs: held ? Math.max(0, untilMs - nowMs) : 0,
      held,
      lost: held ? undefined : this.#loss?.reason,
      released: this.#released,
    };
  }

  /** Whether `state` will not change any more. */
  get over(): boolean {
    return this.#phase === "ended" || this.#phase === "leaving";
  }

  /** Resolves at the next change of `state`. */
  nextChange(): Promise<void> {
    this.#change ??= deferred();
    return this.#change.promise;
  }

  /** Throws `LEASE_LOST` or, after a release, `NOT_HELD`. */
  assertHeld(): void {
    if (this.held) return;
    if (this.#released || this.#loss === undefined) throw notHeldError(this.request.key);
    throw this.#loss;
  }

  /** Proves the lease for `ttlMs` from now on, or rejects. */
  extend(ttlMs: number): Promise<void> {
    this.assertHeld();
    const nowMs = this.#now();
    this.#extensions ??= new Extensions();
    const giveUpMs = Math.ceil(nowMs + this.#heartbeat.settings.requestTimeoutMs);
    const proven = this.#extensions.add(ttlMs, this.#provenBy(nowMs, ttlMs), nowMs, giveUpMs);
    this.#heartbeat.renew([this], nowMs);
    this.#heartbeat.report.extending(this, ttlMs, proven);
    return proven;
  }

  /** Stops or starts the lease's own heartbeats. Throws like `assertHeld` if it is over and cannot be started. */
  setRenewal(on: boolean): void {
    const nowMs = this.#now();
    const phase = this.#expireIfOverdue(nowMs);
    if (this.over && on) this.assertHeld();
    if (this.over || on === this.#renews) return;
    this.#renews = on;
    if (phase !== "held") return;
    if (on) {
      if (this.#heartbeat.standby !== undefined) this.#keep(this.#heartbeat.standby);
      this.#heartbeat.renew([this], nowMs);
      return;
    }
    this.#dropKept();
    if (this.#wantsHeartbeats()) return;
    // Requests that are unanswered now are not why the lease ends.
    this.#answered();
    this.#attemptMs = undefined;
  }

  /** Ends the claim, and everything that keeps it alive first. Whether it was still held; false when it was over. */
  release(): Promise<boolean> {
    const nowMs = this.#now();
    this.#expireIfOverdue(nowMs);
    if (this.#phase === "ended") return Promise.resolve(false);
    // Whoever released first hears how it went.
    if (this.#departure !== undefined) return this.#departure.promise.then(no, no);
    this.#released = true;
    const wasHeld = this.#phase === "held";
    const departed = this.#depart(nowMs, this.#heartbeat.settings.requestTimeoutMs);
    // One that waits to be won again was counted as lost.
    if (wasHeld) this.#heartbeat.stats.released++;
    else this.#heartbeat.report.cancelled(this, "released", true);
    return departed;
  }

  /** Ends the claim because the client closes, and tells whoever still counts on it. */
  async shutDown(): Promise<void> {
    if (this.#everHeld && !this.over) {
      const loss = new LeaseLostError(this.request.key, "closed");
      this.#loss = loss;
      const tell = this.#heartbeat.report.losing(this, this.#phase === "held", loss);
      if (this.stays) {
        this.#extensions?.end(loss);
        this.#detached = true;
        this.#end();
        this.#controller?.abort(loss);
        tell();
        return;
      }
      // As long as for any other release: that of thousands at once takes a busy store more than a moment.
      void this.#depart(this.#now(), this.#heartbeat.settings.requestTimeoutMs);
      this.#controller?.abort(loss);
      tell();
    } else if (this.#phase === "asking" || this.#phase === "waiting") {
      this.#giveUp(closedError(this.request.key), "closed");
    }
    await this.#departure?.promise;
  }

  // What the heartbeat tells.

  /** Whether it wants heartbeats. */
  get alive(): boolean {
    return this.#phase === "held" || this.#phase === "waiting";
  }

  /** Something is due. Acts on it, or says that a heartbeat is. */
  fallDue(nowMs: number): "renew" | undefined {
    switch (this.#phase) {
      case "asking":
      case "waiting":
        if (hasCome(this.#giveUpMs, nowMs)) this.#stopWaiting();
        else if (hasCome(this.#patienceEnds(), nowMs)) this.#fail(this.#outage());
        else if (this.#phase === "waiting") return this.#renewalDue(nowMs);
        else this.#ask(nowMs);
        return;
      case "held":
        if (this.#expireIfOverdue(nowMs) !== "held") return;
        this.#giveUpExtending(nowMs);
        return this.dueMs - this.earlyMs <= nowMs ? this.#renewalDue(nowMs) : undefined;
      case "leaving":
        if (hasCome(this.#giveUpMs, nowMs)) this.#failToDepart(this.#outage());
        else this.#sendRelease(nowMs);
        return;
      case "ended":
        this.#heartbeat.untrack(this);
    }
  }

  /** A heartbeat goes out. Returns what it asks for. */
  renewalSent(sentMs: number): RenewRef {
    this.#sent(sentMs);
    if (typeof this.#lease === "object") this.#watchLease(this.#lease);
    const extendMs = this.#extensions?.nextTtlMs(this.#renews) ?? 0;
    // A lease that does not renew itself gets what was asked for and no more.
    if (extendMs === 0 || (this.#renews && extendMs <= this.request.ttlMs)) return this.request;
    return { ...this.request, ttlMs: extendMs };
  }

  /**
   * A grant was pushed. Whether that makes it held: not when it may be an old one, or little is left of the claim's life,
   * so that it needs a heartbeat at once anyway. Nor with an id that the application chose: an earlier call may have used
   * it too, and a late request of that one may have taken the claim over, which alone a heartbeat with our token tells.
   */
  pushed(fence: bigint | undefined, nowMs: number): boolean {
    if (this.#namedByCaller) return false;
    const wait = this.#wait;
    if (this.#phase !== "waiting" || wait === undefined) return false;
    if (fence === undefined || fence <= wait.fence) return false;
    if (this.#provenUntilMs - nowMs < this.request.ttlMs / 2) return false;
    const again = this.#everHeld;
    this.#hold(nowMs, nowMs, fence, this.#provenUntilMs);
    this.#answered();
    this.#keepHolding(wait.heardOfMs);
    this.#heartbeat.report.granted(this, nowMs, again);
    return true;
  }

  renewalAnswered(ref: RenewRef, sentMs: number, nowMs: number, answer: RenewAnswer | undefined): void {
    // An answer from before the latest acquire says nothing about the claim which that one made.
    if (ref.token !== this.request.token || !this.alive || sentMs < this.askedMs) return;
    if (answer === undefined || !isSound(answer)) this.renewalFailed(ref, sentMs, unsoundError(ref.key));
    else if (answer.state === "held") this.#granted(ref, sentMs, nowMs, answer);
    else if (answer.state === "waiting") this.#queued(sentMs, nowMs, answer);
    else if (answer.state === "failed") this.renewalFailed(ref, sentMs, answer.error);
    else this.#gone(answer.takenOverBy);
  }

  renewalFailed(ref: RenewRef, sentMs: number, cause: unknown): void {
    const error = HoldfastError.from(cause, this.request.key);
    const isRefused = !error.retryable && this.#extensions?.refuse(ref, this.request, sentMs, error) === true;
    // The store has answered: that a lease which nobody renews then ends by itself is no outage.
    if (isRefused) this.#answered();
    const before = this.#lastError;
    this.requestFailed(ref, error);
    // Nor is it why the lease or another extension fails later.
    if (!error.retryable && (isRefused || this.#isExtra(ref)) && this.#phase === "held")
      this.#lastError = before;
    if (!isRefused || !this.#renews || !this.held) return;
    // The lease's own heartbeat goes at once, as whatever is asked for next would put it off; then what the refused one stood for besides.
    this.#heartbeat.renew([this], this.#now());
    if (this.#extensions?.anyAskedBy(sentMs)) this.#heartbeat.renew([this], this.#now());
  }

  requestFailed(ref: RenewRef, cause: unknown): void {
    const error = HoldfastError.from(cause, this.request.key);
    // The store may serve the lease itself all the while. If it does not serve an extension in time, that is told then.
    this.#heartbeat.report.requestFailed(error, error.retryable && !this.#isExtra(ref));
    if (ref.token !== this.request.token || this.#phase === "ended" || this.#phase === "leaving") return;
    const wasHeld = this.#phase === "held";
    if (!error.retryable && !this.#everHeld) this.#fail(error);
    else if (!wasHeld || this.#wantsHeartbeats()) this.#retry(error);
    if (wasHeld) this.#heartbeat.report.renewalFailed(this, error, this.#provenUntilMs - this.#now());
  }

  // Asking and waiting.

  #ask(nowMs: number): void {
    this.#sent(nowMs);
    if (this.askedMs !== 0) this.#heartbeat.report.askedAnew(this);
    this.askedMs = nowMs;
    const request = this.request;
    const heartbeat = this.#heartbeat;
    acquireFrom(heartbeat.store, request).then(
      (answer) => {
        const answeredMs = heartbeat.wake();
        heartbeat.report.answered();
        if (isSound(answer)) this.#askAnswered(request, nowMs, answeredMs, answer);
        else this.requestFailed(request, unsoundError(request.key));
      },
      (error: unknown) => {
        heartbeat.wake();
        this.requestFailed(request, error);
      },
    );
  }

  /** Of the claim that comes of this, nothing is known yet. */
  #askAnew(): void {
    const nowMs = this.#now();
    this.#phase = "asking";
    this.#keepProcessAlive(this.#isAwaited);
    this.#provenUntilMs = 0;
    this.#wait = new Wait(this, nowMs, this.#wait?.fence ?? 0n);
    this.#answered();
    this.#ask(nowMs);
  }

  #askAnswered(request: ClaimRequest, sentMs: number, nowMs: number, answer: AcquireAnswer): void {
    const current =
      request.token === this.request.token && this.#phase !== "ended" && this.#phase !== "leaving";
    if (!current) {
      // The store has given us what we have already turned away from; it must not stay until its ttl.
      if (answer.state !== "refused" && !this.#detached) this.#heartbeat.discard(request);
      return;
    }
    if (this.#wait !== undefined && sentMs < this.#wait.heardOfMs) {
      // Overtaken by a later answer: the claim that it tells of may be gone since, and somebody else hold the key. Where it
      // waits, a heartbeat tells; otherwise the answer to the latest request will.
      if (this.#phase === "waiting" && answer.state === "held") this.#heartbeat.renew([this], nowMs);
    } else if (answer.state === "held") this.#granted(request, sentMs, nowMs, answer);
    else if (answer.state === "waiting") this.#queued(sentMs, nowMs, answer);
    else if (this.#phase === "asking") this.#refused(answer.reason);
  }

  #queued(sentMs: number, nowMs: number, answer: WaitingAnswer): void {
    if (this.#phase === "held") {
      // A grant is never taken back, so this answer is older than the one that brought it.
      if (sentMs > this.heldSinceMs) this.#supplanted();
      return;
    }
    this.#answered();
    this.#wait ??= new Wait(this, sentMs, answer.fence);
    this.#wait.heardOfMs = Math.max(this.#wait.heardOfMs, sentMs);
    this.#provenUntilMs = Math.max(this.#provenUntilMs, this.#provenBy(sentMs, answer.expiresInMs));
    if (answer.fence > this.#wait.fence) this.#wait.fence = answer.fence;
    const joined = this.#phase === "asking";
    if (joined && this.#startWaiting(this.#wait)) this.#heartbeat.renew([this], nowMs);
    else this.#keepWaiting(sentMs, nowMs, answer);
    if (joined) this.#heartbeat.report.waiting(this);
  }

  #keepWaiting(sentMs: number, nowMs: number, answer: WaitingAnswer): void {
    const heartbeatMs = sentMs + this.request.ttlMs / 3;
    const retryMs = nowMs + Math.max(0, answer.retryInMs) + STORE_TICK_MS;
    this.#attemptIsHeartbeat = heartbeatMs < retryMs;
    this.#attemptMs = noSoonerThan(Math.min(heartbeatMs, retryMs));
    this.#schedule();
  }

  /** Whether a grant was pushed already, overtaking the answer that says "waiting". */
  #startWaiting(wait: Wait): boolean {
    this.#phase = "waiting";
    this.#heartbeat.stats.waiting++;
    this.#keepProcessAlive(this.#isAwaited);
    if (!this.#everHeld) this.#tellWaiting();
    return this.#heartbeat.expectGrant(wait);
  }

  /** In a turn of its own: what the application does there, or throws, is not in the way of this one. */
  #tellWaiting(): void {
    const onWaiting = this.#caller?.onWaiting;
    if (onWaiting !== undefined) queueMicrotask(() => onWaiting(this.request.key));
  }

  /** The time to wait is up: `waitMs`, or for a lease that is to be won again `maxHoldMs`. */
  #stopWaiting(): void {
    if (this.#everHeld) this.#lose("max-hold");
    else if (this.#wait === undefined) this.#stopUnheard();
    else this.#giveUp(new AcquireTimeoutError(this.request.key, this.#caller?.waitMs ?? 0), "timeout");
  }

  /** No answer ever said "waiting", so this is no contention. A short silence is not counted as an outage of the store. */
  #stopUnheard(): void {
    const error = this.#unavailable(`waitMs ${this.#caller?.waitMs}`);
    if (this.#attempts >= MIN_ATTEMPTS) this.#heartbeat.report.outage(error);
    this.#fail(error);
  }

  #refused(reason: RefusalReason): void {
    const { key, id } = this.request;
    if (this.#everHeld) {
      this.#retry(refusalError(reason, key, id));
      return;
    }
    // An earlier request that went unanswered may yet arrive and be granted.
    if (this.#attempts > 1) this.#heartbeat.discard(this.request);
    this.#end();
    if (reason === "contended") {
      if (this.#caller?.isTry) this.#caller.resolve("contended");
      else this.#caller?.reject(new AcquireTimeoutError(key, this.#caller.waitMs));
      this.#heartbeat.report.contended(this);
    } else this.#reject(refusalError(reason, key, id));
  }

  /** Takes back what was asked for, and tells the caller when the store has confirmed that. */
  #giveUp(reason: unknown, why: "timeout" | CancelReason): void {
    const caller = this.#caller;
    const refuse = () => caller?.reject(reason);
    this.#depart(this.#now(), GOODBYE_MS).then(refuse, refuse);
    if (why === "timeout") this.#heartbeat.report.timedOut(this);
    else this.#heartbeat.report.cancelled(this, why, false);
  }

  /** Tells the caller at once: there is no use in waiting for such a store once more. */
  #fail(error: HoldfastError): void {
    this.#end();
    this.#heartbeat.discard(this.request);
    this.#reject(error);
  }

  #reject(error: HoldfastError): void {
    this.#caller?.reject(error);
    this.#heartbeat.report.failed(this, error, this.#everHeld);
  }

  // Holding.

  #granted(ref: RenewRef, sentMs: number, nowMs: number, answer: HeldAnswer): void {
    const provenUntilMs = this.#provenBy(sentMs, answer.expiresInMs);
    const isNew = this.#phase !== "held";
    const again = this.#everHeld;
    if (isNew) {
      if (provenUntilMs <= nowMs) {
        this.#retry(tooLateError(this.request.key));
        return;
      }
      this.#hold(sentMs, nowMs, answer.fence, provenUntilMs);
    } else if (answer.fence > this.fence) {
      this.#supplanted();
      return;
    }
    this.#answered();
    // Answers may come in any order, and each is proof by itself.
    this.#provenUntilMs = Math.max(this.#provenUntilMs, provenUntilMs);
    this.#extensions?.prove(this.#provenUntilMs, sentMs, ref.ttlMs ?? 0);
    this.#kept?.prove(this.#provenUntilMs);
    this.#keepHolding(sentMs);
    if (isNew) this.#heartbeat.report.granted(this, nowMs, again);
    else this.#heartbeat.report.renewed(this, this.#provenUntilMs - nowMs);
  }

  /** The next heartbeat is due a while after the one that the lease was proven by, or the next attempt at what that did not ask for. */
  #keepHolding(heardOfMs: number): void {
    const heartbeatMs = heardOfMs + this.#settings.renewEveryMs;
    const extendMs = this.#extensions?.none === false ? this.#now() + this.#attemptTimeoutMs() : NEVER;
    this.#attemptMs = this.#wantsHeartbeats() ? noSoonerThan(Math.min(heartbeatMs, extendMs)) : undefined;
    this.#attemptIsHeartbeat = heartbeatMs <= extendMs;
    this.#schedule();
    this.#changed();
    if (this.#caller !== undefined) this.#handOut(this.#caller);
  }

  /**
   * Gives the application its lease. From the first heartbeat on that is only watched, and ends the claim when it is
   * garbage-collected. Watching is dear, and most leases are released before a heartbeat is due.
   */
  #handOut(caller: Caller): void {
    const lease = new Lease(this);
    this.#lease = lease;
    this.#caller = undefined;
    caller.resolve(lease);
  }

  #hold(sentMs: number, nowMs: number, fence: bigint, provenUntilMs: number): void {
    this.#leavePhase();
    this.#phase = "held";
    this.#wait = undefined;
    this.heldSinceMs = nowMs;
    this.#acquiredAtMs = undefined;
    const { stats } = this.#heartbeat;
    stats.held++;
    stats.granted++;
    if (this.#everHeld) stats.regained++;
    this.#loss = undefined;
    this.#provenUntilMs = provenUntilMs;
    this.fence = fence;
    // The cap is on all the time since the first grant, also when the lease is won again.
    this.#holdUntilMs ??= noLaterThan(sentMs + this.#settings.maxHoldMs);
    this.#keepProcessAlive(this.#settings.keepProcessAlive);
    if (this.#heartbeat.standby !== undefined && this.#renews) this.#keep(this.#heartbeat.standby);
  }

  #keep(standby: StandbyHeartbeat): void {
    const terms = {
      ref: this.request,
      fence: this.fence,
      ttlMs: this.request.ttlMs,
      renewEveryMs: this.#settings.renewEveryMs,
      provenUntilMs: this.#provenUntilMs,
      holdUntilMs: this.#holdUntilMs ?? NEVER,
    };
    this.#kept = standby.keep(terms, () => this.#expireIfOverdue(this.#heartbeat.wake()));
  }

  /** Takes in what another thread has found out, before anything is decided by what is known. */
  #catchUp({ provenUntilMs, loss }: KeptClaim): void {
    this.#provenUntilMs = Math.max(this.#provenUntilMs, Math.floor(provenUntilMs));
    // The store may have a claim of ours for which nobody renews or releases any more: see `#supplanted`.
    if (loss === "gone") this.#supplanted();
    else if (loss !== undefined) this.#lose(loss);
  }

  /**
   * The store had lost the lease or was made to end it, and then met an acquire of ours once more, on its way since or
   * repeated by the network. What that made is not our lease: somebody else may have held the key in between.
   */
  #supplanted(): void {
    this.#heartbeat.discard(this.request);
    this.#lose("gone");
  }

  #gone(takenOverBy: string | undefined): void {
    if (this.#phase === "held") {
      this.#lose(takenOverBy === undefined ? "gone" : "taken-over");
    } else if (takenOverBy !== undefined && takenOverBy !== this.request.owner) {
      // Asking again would take it back, and the two clients would go on robbing each other. Within this client no two
      // calls share an id, so there it was a late request of a call that is over, and the claim is ours to take back.
      this.#fail(takenOverError(this.request.key, this.request.id));
    } else {
      // The store lost the queue, or this process was paused past its ttl. The claim joins again, under its own id.
      this.#leavePhase();
      this.#askAnew();
    }
  }

  /** Whether a heartbeat asks for more than the lease does by itself. */
  #isExtra({ ttlMs = this.request.ttlMs }: RenewRef): boolean {
    return this.#renews && ttlMs !== this.request.ttlMs;
  }

  /** A lease without renewal sends heartbeats only to be extended. */
  #wantsHeartbeats(): boolean {
    return this.#renews || this.#extensions?.none === false;
  }

  #giveUpExtending(nowMs: number): void {
    this.#extensions?.giveUp(nowMs, () => this.#outage());
    if (!this.#wantsHeartbeats()) this.#attemptMs = undefined;
  }

  #expireIfOverdue(nowMs: number): Phase {
    if (this.#phase === "held" && this.#kept !== undefined) this.#catchUp(this.#kept);
    if (this.#phase === "held" && nowMs >= this.#provenUntilMs) this.#lose("expired", this.#whyUnproven());
    else if (this.#phase === "held" && hasCome(this.#holdUntilMs, nowMs)) this.#lose("max-hold");
    return this.#phase;
  }

  #lose(reason: LossReason, cause?: unknown): void {
    const loss = new LeaseLostError(this.request.key, reason, cause);
    this.#loss = loss;
    const tell = this.#heartbeat.report.losing(this, this.#phase === "held", loss);
    // We no longer act on this claim, so nobody should have to wait for it to expire.
    const isOver = reason === "expired" || reason === "max-hold" || reason === "blocked";
    if (isOver && !this.stays) this.#heartbeat.discard(this.request);
    this.#extensions?.end(loss);
    // A lease whose renewal the application has paused ends.
    const isPaused = this.#settings.renew && !this.#renews;
    const isWanted = this.#settings.reacquire && !isPaused;
    if (isWanted && (reason === "expired" || reason === "gone" || reason === "blocked")) {
      this.#reacquire();
      this.#changed();
    } else {
      this.#end();
      this.#controller?.abort(loss);
    }
    tell();
    if (this.#phase === "asking") this.#heartbeat.report.asked(this, NEVER, true);
  }

  #renewalDue(nowMs: number): "renew" {
    this.#attemptAgainAfter(nowMs);
    if (this.#attempts % 2 === 1) this.#extensions?.ownNext();
    const isSilent = this.#phase === "held" && this.silences > 0;
    if (isSilent) this.#heartbeat.report.renewalUnanswered(this, this.#provenUntilMs - nowMs);
    return "renew";
  }

  /** Under a new id, so that nothing still on its way about the old claim can be mistaken for the new one. */
  #reacquire(): void {
    this.#leavePhase();
    this.#freeName();
    this.request = { ...this.request, ...newClaimIds(), wait: true };
    this.subject = undefined;
    this.askedMs = 0;
    this.#giveUpMs = this.#holdUntilMs;
    this.#askAnew();
  }

  #watchLease(lease: object): void {
    unreleased.register(lease, this, this);
    this.#lease = WATCHED;
  }

  /** The lease was garbage-collected. Nobody can release it any more, so it is left to its ttl, and said. */
  abandon(): void {
    if (this.over) return;
    this.#heartbeat.stats.unreleased++;
    // While it is being won again there is nothing that it could still protect, so nobody has to wait for its ttl.
    if (this.#phase !== "held") this.#heartbeat.discard(this.request);
    this.#lose("abandoned");
    this.warn("UNRELEASED_LEASE", unreleasedText(this.request.key));
  }

  warn(code: HoldfastWarning["code"], message: string, cause?: unknown): void {
    this.#heartbeat.report.warn({ code, message, key: this.request.key, cause });
  }

  // Leaving.

  /** Says goodbye to the store for up to `patienceMs`. Whether the lease was still held; rejects when unanswered. */
  #depart(nowMs: number, patienceMs: number): Promise<boolean> {
    const wasHeld = this.#phase === "held";
    this.#leavePhase();
    this.#phase = "leaving";
    this.#giveUpMs = noSoonerThan(nowMs + patienceMs);
    this.#extensions?.end(notHeldError(this.request.key));
    this.#answered();
    const { promise, resolve, reject } = deferred<boolean>();
    // Named one by one: spread out, they would cost a third of a whole lock cycle.
    this.#departure = { promise, resolve, reject, wasHeld };
    this.#sendRelease(nowMs);
    this.#changed();
    return promise;
  }

  #sendRelease(nowMs: number): void {
    this.#sent(nowMs);
    const heartbeat = this.#heartbeat;
    releaseFrom(heartbeat.store, this.request).then(
      (removed) => {
        heartbeat.wake();
        heartbeat.report.answered();
        if (this.#phase !== "leaving") return;
        // Not there on a later attempt: then an earlier one, whose answer was lost, removed it.
        const wasThere = removed?.[0] === true || this.#attempts > 1;
        this.#end();
        this.#departure?.resolve(this.#departure.wasHeld && wasThere);
        if (this.#gaveBack) heartbeat.report.released(this, wasThere);
      },
      (cause: unknown) => {
        heartbeat.wake();
        const error = HoldfastError.from(cause, this.request.key);
        heartbeat.report.requestFailed(error);
        if (this.#phase !== "leaving") return;
        if (error.retryable) this.#retry(error);
        else this.#failToDepart(error);
      },
    );
  }

  #failToDepart(error: HoldfastError): void {
    this.#end();
    this.#departure?.reject(error);
    if (this.#gaveBack) this.#heartbeat.report.releaseFailed(this, error);
  }

  /** Whether it leaves because a lease was given back, and not because it was lost or never held. */
  get #gaveBack(): boolean {
    return this.#released && this.#departure?.wasHeld === true;
  }

  #end(): void {
    this.#leavePhase();
    this.#phase = "ended";
    this.#heartbeat.untrack(this);
    this.#freeName();
    if (this.#lease === WATCHED) unreleased.unregister(this);
    this.#lease = undefined;
    this.#changed();
  }

  #leavePhase(): void {
    if (this.#phase === "held") {
      this.#heartbeat.stats.held--;
      this.#dropKept();
    }
    if (this.#phase === "waiting") {
      this.#heartbeat.stats.waiting--;
      if (this.#wait !== undefined) this.#heartbeat.expectNoGrant(this.#wait);
    }
    this.#keepProcessAlive(false);
  }

  #dropKept(): void {
    this.#kept?.drop();
    this.#kept = undefined;
  }

  #freeName(): void {
    if (this.#namedByCaller) this.#heartbeat.unreserve(this.request);
    this.#namedByCaller = false;
  }

  // Time and attempts.

  #now(): number {
    return this.#heartbeat.clock.monotonicMs();
  }

  /** Until when an answer proves the claim, whose request was sent at `sentMs`. */
  #provenBy(sentMs: number, expiresInMs: number): number {
    return Math.floor(sentMs + expiresInMs * (1 - this.#heartbeat.settings.clockDrift) - STORE_TICK_MS);
  }

  /** How long one request may take before it is sent again: several fit into the time the store is given. */
  #attemptTimeoutMs(): number {
    return Math.min(this.#heartbeat.settings.requestTimeoutMs, this.request.ttlMs / 2) / 3;
  }

  #sent(nowMs: number): void {
    this.#unansweredSinceMs ??= noLaterThan(nowMs);
    this.#attempts++;
    this.silences++;
    this.#attemptAgainAfter(nowMs);
    this.#schedule();
  }

  #attemptAgainAfter(nowMs: number): void {
    this.#attemptMs = noSoonerThan(nowMs + this.#attemptTimeoutMs());
    this.#attemptIsHeartbeat = false;
  }

  #answered(): void {
    this.#unansweredSinceMs = undefined;
    this.#attempts = 0;
    this.silences = 0;
    this.#lastError = undefined;
  }

  #retry(error: HoldfastError): void {
    this.#lastError = error;
    this.silences = 0;
    if (this.#phase !== "held") this.#keepProcessAlive(this.#isAwaited || this.#phase === "leaving");
    const doubledMs = FIRST_RETRY_MS * 2 ** Math.min(this.#attempts - 1, 10);
    this.#attemptMs = noSoonerThan(this.#now() + Math.min(doubledMs, this.#attemptTimeoutMs()));
    this.#attemptIsHeartbeat = false;
    this.#schedule();
  }

  /** When a store that stays silent counts as unavailable. */
  #patienceEnds(): Deadline {
    if (this.#everHeld || this.#attempts < MIN_ATTEMPTS || this.#unansweredSinceMs === undefined)
      return undefined;
    const patienceMs =
      this.#phase === "asking" ? this.#heartbeat.settings.requestTimeoutMs : this.request.ttlMs;
    return this.#unansweredSinceMs + patienceMs;
  }

  #schedule(): void {
    this.#heartbeat.schedule(this);
  }

  /** When the present phase ends by itself. */
  #limit(): Deadline {
    if (this.#phase === "leaving") return this.#giveUpMs;
    if (this.#phase !== "held") return earliest(this.#giveUpMs, this.#patienceEnds());
    return earliest(earliest(this.#provenUntilMs, this.#holdUntilMs), this.#extensions?.giveUpMs);
  }

  #keepProcessAlive(on: boolean): void {
    if (this.#keepsAlive === on) return;
    this.#keepsAlive = on;
    this.#heartbeat.countPending(on ? 1 : -1);
  }

  #changed(): void {
    this.#change?.resolve();
    this.#change = undefined;
  }

  /** What kept a lease from being renewed. Nothing is known of that when this process was paused. */
  #whyUnproven(): unknown {
    return this.#lastError ?? (this.#attempts < MIN_ATTEMPTS ? undefined : this.#outage());
  }

  /** The store has been silent for too long. */
  #outage(): HoldfastError {
    const { settings, report } = this.#heartbeat;
    const { ttlMs } = this.request;
    const isWaiting = this.#phase === "waiting";
    const error = this.#unavailable(
      isWaiting ? `ttlMs ${ttlMs}` : `requestTimeoutMs ${settings.requestTimeoutMs}`,
    );
    report.outage(error);
    return error;
  }

  #unavailable(bound: string): HoldfastError {
    return unavailableError(this.#heartbeat.store.name, this.request.key, bound, this.#lastError);
  }
}

const unreleased = new FinalizationRegistry<LiveClaim>((claim) => claim.abandon());
