/**
 * Runs one claim: passes calls and answers to the machine of claim.ts as events, and carries out the effects.
 *
 * A step of the machine only notes down its requests and reports. `settle` runs after each step: it plans the next look at the
 * claim, sends the requests, and then reports. Listeners may call anything, and find a complete state.
 */
import { deferred } from "../platform/index.ts";
import {
  acquireFrom,
  type ClaimRequest,
  newClaimIds,
  type RenewAnswer,
  type RenewRef,
  releaseFrom,
} from "../store/index.ts";
import { UNTRACKED } from "./agenda.ts";
import {
  type Claim,
  dueMs,
  type Effects,
  earlyMs,
  keepsProcessAlive,
  type Live,
  NEVER,
  type Phase,
} from "./claim.ts";
import * as answers from "./claim-answers.ts";
import { unreleasedText } from "./claim-errors.ts";
import * as events from "./claim-events.ts";
import { ClaimOutcomes } from "./claim-outcomes.ts";
import type { Lease } from "./lease.ts";
import type { KeptClaim, StandbyHeartbeat } from "./standby.ts";

// The requests that a step has noted down, in one number: two flags and a count of heartbeats.
const ACQUIRE = 1;
const RELEASE = 2;
const ONE_RENEWAL = 4;

/** Stands for a lease that the finalization registry watches. */
export const WATCHED = Symbol("watched");

export type Open = "asking" | "waiting" | "held";

export abstract class ClaimRunner extends ClaimOutcomes implements Effects {
  // The claim's place in the agenda of the heartbeat.
  wakeMs = 0;
  slot = UNTRACKED;
  isFar = false;
  // The claim's place in the heartbeat's index of waiting claims.
  idHash = 0;
  idNext: this | undefined = undefined;
  protected lease: Lease | typeof WATCHED | undefined = undefined;
  /** The lease as the heartbeat in a worker thread knows it. */
  #kept: KeptClaim | undefined = undefined;
  #sends = 0;
  #keepsAlive = false;

  // Questions and events.

  get held(): boolean {
    return this.look(this.now());
  }

  protected look(nowMs: number): boolean {
    if (this.phase !== "held") return false;
    const isHeld = events.looked(live(this), this.#kept, nowMs);
    if (!isHeld) this.settle();
    return isHeld;
  }

  get id(): string {
    return this.request.id;
  }

  get dueMs(): number {
    return dueMs(live(this));
  }

  get earlyMs(): number {
    return earlyMs(live(this));
  }

  /** Whether the claim wants heartbeats. */
  get alive(): boolean {
    return this.phase === "held" || this.phase === "waiting";
  }

  /** Something is due. Returns whether that is a heartbeat. */
  fallDue(nowMs: number): boolean {
    const isDue = events.fellDue(live(this), this.#kept, nowMs);
    this.settle();
    return isDue;
  }

  /** A heartbeat of a live claim goes out. Returns the request for the store. */
  heartbeatSent(sentMs: number): RenewRef {
    const ref = answers.renewalSent(live<"waiting" | "held">(this), sentMs);
    this.heartbeat.schedule(this);
    // Watching is expensive, and most leases end before their first heartbeat.
    if (typeof this.lease === "object") {
      unreleased.register(this.lease, this, this);
      this.lease = WATCHED;
    }
    return ref;
  }

  heartbeatAnswered(ref: RenewRef, sentMs: number, nowMs: number, answer: RenewAnswer | undefined): void {
    answers.renewalAnswered(live(this), ref, sentMs, nowMs, answer);
    this.settle();
  }

  heartbeatFailed(ref: RenewRef, sentMs: number, nowMs: number, error: unknown): void {
    answers.renewalFailed(live(this), ref, sentMs, error, nowMs);
    this.settle();
  }

  /** A grant was pushed. Returns whether the claim is held by it. */
  pushed(fence: bigint | undefined, nowMs: number): boolean {
    const isHeld = answers.pushed(live(this), fence, nowMs);
    if (isHeld) this.settle();
    return isHeld;
  }

  /** Ends the claim because the client closes. */
  async shutDown(): Promise<void> {
    events.closed(live(this), this.now());
    this.settle();
    await this.departure?.promise;
  }

  /** The lease object was garbage-collected, so no caller can release it. */
  abandon(): void {
    if (this.over) return;
    this.heartbeat.stats.unreleased++;
    events.abandoned(live<Open>(this), this.now());
    this.settle();
    this.warn("UNRELEASED_LEASE", unreleasedText(this.request.key));
  }

  // Effects.

  protected settle(): void {
    const { heartbeat } = this;
    if (this.phase !== "ended") heartbeat.schedule(this);
    const keepsAlive = keepsProcessAlive(live(this));
    if (keepsAlive !== this.#keepsAlive) {
      this.#keepsAlive = keepsAlive;
      heartbeat.countPending(keepsAlive ? 1 : -1);
    }
    if (this.#sends !== 0) this.#send();
    heartbeat.report.flush();
  }

  sendAcquire(): void {
    this.#sends |= ACQUIRE;
  }

  sendRenewal(): void {
    this.#sends += ONE_RENEWAL;
  }

  sendRelease(): void {
    this.#sends |= RELEASE;
  }

  discard(request: ClaimRequest): void {
    this.heartbeat.discard(request);
  }

  #send(): void {
    const sends = this.#sends;
    this.#sends = 0;
    if ((sends & ACQUIRE) !== 0) this.#sendAcquire();
    if ((sends & RELEASE) !== 0) this.#sendRelease();
    for (let left = sends; left >= ONE_RENEWAL; left -= ONE_RENEWAL) {
      if (this.alive) this.heartbeat.renew([this], this.now());
    }
  }

  #sendAcquire(): void {
    const { heartbeat, request, latestAskMs: sentMs } = this;
    acquireFrom(heartbeat.store, request).then(
      (answer) => {
        const nowMs = heartbeat.wake();
        heartbeat.report.answered();
        answers.acquireAnswered(live(this), request, sentMs, nowMs, answer);
        this.settle();
      },
      (error: unknown) => {
        answers.acquireFailed(live(this), request, error, heartbeat.wake());
        this.settle();
      },
    );
  }

  #sendRelease(): void {
    const { heartbeat } = this;
    releaseFrom(heartbeat.store, this.request).then(
      (removed) => {
        heartbeat.wake();
        heartbeat.report.answered();
        answers.releaseAnswered(live(this), removed?.[0] === true);
        this.settle();
      },
      (error: unknown) => {
        answers.releaseFailed(live(this), error, heartbeat.wake());
        this.settle();
      },
    );
  }

  newIds(): { id: string; token: string } {
    return newClaimIds();
  }

  moved(from: Phase, to: Phase): void {
    const { heartbeat } = this;
    const { stats } = heartbeat;
    if (from === "held") {
      stats.held--;
      this.keep(false);
    } else if (from === "waiting") {
      stats.waiting--;
      heartbeat.expectNoGrant(this);
    }
    if (to === "held") {
      stats.held++;
      this.acquiredAtMs = undefined;
      // Before the caller's promise is resolved: the caller may block the event loop at once.
      this.keep(this.renews);
    } else if (to === "waiting") {
      stats.waiting++;
      // A push that overtook the answer "waiting" is unproven, so a heartbeat asks the store.
      if (heartbeat.expectGrant(this)) this.sendRenewal();
    } else if (to === "leaving") this.departure = deferred();
    else if (to === "ended" || from === "held") {
      // A lease that is to be won again gets another request, so its name is freed first.
      if (this.namedByCaller) heartbeat.unreserve(this.request);
      if (to === "ended") this.#forget();
    }
  }

  #forget(): void {
    this.heartbeat.untrack(this);
    if (this.lease === WATCHED) unreleased.unregister(this);
    this.lease = undefined;
  }

  proven(untilMs: number): void {
    this.#kept?.prove(untilMs);
  }

  /** Has the heartbeat in a worker thread look after the lease too, or no longer. */
  protected keep(on: boolean): void {
    this.#kept?.drop();
    const { standby } = this.heartbeat;
    this.#kept = on && standby !== undefined ? this.#keptBy(standby) : undefined;
  }

  #keptBy(standby: StandbyHeartbeat): KeptClaim {
    const { request: ref, fence, provenUntilMs, holdUntilMs = NEVER } = this;
    const { renewEveryMs } = this.settings;
    const terms = { ref, fence, ttlMs: ref.ttlMs, renewEveryMs, provenUntilMs, holdUntilMs };
    return standby.keep(terms, () => this.look(this.heartbeat.wake()));
  }

  protected now(): number {
    return this.heartbeat.clock.monotonicMs();
  }
}

/** The claim as the machine sees it. A caller that has checked the phase names it. */
export function live<P extends Phase = Phase>(claim: ClaimRunner): Live<Extract<Claim, { phase: P }>> {
  return claim as unknown as Live<Extract<Claim, { phase: P }>>;
}

const unreleased = new FinalizationRegistry<ClaimRunner>((claim) => claim.abandon());
