/** The side of a claim that the application sees: the results of its calls, the state of its lease, events and statistics. */
import { type Deferred, deferred } from "../platform/index.ts";
import { AcquireTimeoutError, type ClaimRequest, HoldfastError, LeaseLostError } from "../store/index.ts";
import { ClaimState, type Loss, NEVER } from "./claim.ts";
import { notHeldError, unavailableError } from "./claim-errors.ts";
import type { CancelReason, EventClaim } from "./events.ts";
import type { Heartbeat } from "./heartbeat.ts";
import type { Lease, LeaseState } from "./lease.ts";
import type { HoldfastWarning, LockSettings } from "./options.ts";

/** The result of a try: a lease, or none because another claim has the lock. */
export type AcquireResult = Lease | "contended";

/** The call of the application that waits for a lease. */
export interface Waiter extends Omit<Deferred<AcquireResult>, "promise"> {
  readonly waitMs: number;
  /** Whether contention is an answer and not an error. */
  readonly isTry: boolean;
  /** Called when the claim has to wait. */
  readonly onWaiting: OnWaiting;
}

export type OnWaiting = ((key: string) => void) | undefined;

export abstract class ClaimOutcomes extends ClaimState {
  /** The object that stands for this claim in events, once one was published. */
  subject: EventClaim | undefined = undefined;
  protected readonly heartbeat: Heartbeat;
  protected waiter: Waiter | undefined = undefined;
  /** The result of the release. */
  protected departure: Deferred<boolean> | undefined = undefined;
  /** The open calls of `extend`, by ticket. */
  protected extendCalls: Map<number, Deferred<void>> | undefined = undefined;
  /** `heldSinceMs` on the wall clock. Computed once a grant, so that every read returns the same. */
  protected acquiredAtMs: number | undefined = undefined;
  #controller: AbortController | undefined = undefined;
  #change: Deferred<void> | undefined = undefined;
  #lossError: LeaseLostError | undefined = undefined;

  constructor(heartbeat: Heartbeat, settings: LockSettings, request: ClaimRequest, namedByCaller: boolean) {
    super(request, settings, heartbeat.settings, namedByCaller);
    this.heartbeat = heartbeat;
  }

  /** Makes the lease object for the waiter. */
  protected abstract newLease(): Lease;

  // The lease.

  /** Ends the lease if its time is over. Returns whether it is held. */
  abstract get held(): boolean;

  get signal(): AbortSignal {
    const isHeld = this.held;
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      // A closing client aborts only the signals that exist by then, and goes on releasing leases for a while.
      const isLost = !isHeld && this.over && !this.released && this.loss !== undefined;
      if (isLost) this.#controller.abort(this.lossError);
    }
    return this.#controller.signal;
  }

  get state(): LeaseState {
    const { held } = this;
    const nowMs = this.heartbeat.clock.monotonicMs();
    const wallMs = this.heartbeat.clock.wallMs();
    const untilMs = Math.min(this.provenUntilMs, this.holdUntilMs ?? NEVER);
    this.acquiredAtMs ??= Math.round(wallMs + this.heldSinceMs - nowMs);
    return {
      id: this.request.id,
      fence: this.fence,
      acquiredAtMs: this.acquiredAtMs,
      expiresAtMs: wallMs + untilMs - nowMs,
      expiresInMs: held ? Math.max(0, untilMs - nowMs) : 0,
      held,
      lost: held ? undefined : this.loss?.reason,
      released: this.released,
    };
  }

  /** Whether `state` will not change any more. */
  get over(): boolean {
    return this.phase === "ended" || this.phase === "leaving";
  }

  /** Resolves at the next change of `state`. */
  nextChange(): Promise<void> {
    this.#change ??= deferred();
    return this.#change.promise;
  }

  changed(): void {
    this.#change?.resolve();
    this.#change = undefined;
  }

  /** Throws `LEASE_LOST` or, after a release, `NOT_HELD`. */
  assertHeld(): void {
    if (this.held) return;
    if (this.released || this.loss === undefined) throw notHeldError(this.request.key);
    throw this.lossError;
  }

  /** The loss as the one error that all callers get. */
  get lossError(): LeaseLostError {
    const { reason, cause } = this.loss as Loss;
    this.#lossError ??= new LeaseLostError(this.request.key, reason, cause);
    return this.#lossError;
  }

  warn(code: HoldfastWarning["code"], message: string, cause?: unknown): void {
    this.heartbeat.report.warn({ code, message, key: this.request.key, cause });
  }

  // Effects: results of calls.

  granted(nowMs: number, again: boolean): void {
    const { stats, report } = this.heartbeat;
    stats.granted++;
    if (again) stats.regained++;
    this.waiter?.resolve(this.newLease());
    this.waiter = undefined;
    report.granted(this, nowMs, again);
  }

  contended(): void {
    const { waiter } = this;
    if (waiter?.isTry) waiter.resolve("contended");
    else waiter?.reject(new AcquireTimeoutError(this.request.key, waiter.waitMs));
    this.heartbeat.report.contended(this);
  }

  failed(error: HoldfastError, again: boolean): void {
    this.waiter?.reject(error);
    this.heartbeat.report.failed(this, error, again);
  }

  givesUp(why: "timeout" | CancelReason, reason: unknown): void {
    const { waiter, departure } = this;
    const error = why === "timeout" ? new AcquireTimeoutError(this.request.key, waiter?.waitMs ?? 0) : reason;
    const refuse = () => waiter?.reject(error);
    departure?.promise.then(refuse, refuse);
    if (why === "timeout") this.heartbeat.report.timedOut(this);
    else this.heartbeat.report.cancelled(this, why, false);
  }

  departed(wasThere: boolean): void {
    this.departure?.resolve(this.wasHeld && wasThere);
    if (this.wasHeld && this.released) this.heartbeat.report.released(this, wasThere);
  }

  departFailed(error: HoldfastError): void {
    this.departure?.reject(error);
    if (this.wasHeld && this.released) this.heartbeat.report.releaseFailed(this, error);
  }

  extended(ticket: number, failure: HoldfastError | Loss | undefined): void {
    const call = this.extendCalls?.get(ticket);
    this.extendCalls?.delete(ticket);
    if (failure === undefined) call?.resolve();
    else call?.reject(failure instanceof HoldfastError ? failure : this.lossError);
  }

  // Effects: events and statistics.

  waits(): void {
    const onWaiting = this.waiter?.onWaiting;
    // In a turn of its own, because the callback may throw.
    if (onWaiting !== undefined) queueMicrotask(() => onWaiting(this.request.key));
    this.heartbeat.report.waiting(this);
  }

  asksAgain(): void {
    // A lease that is won again is another claim in events.
    this.subject = undefined;
    this.heartbeat.report.asked(this, NEVER, true);
  }

  lost(wasHeld: boolean, ends: boolean): void {
    this.#lossError = undefined;
    const controller = this.#controller;
    const { report } = this.heartbeat;
    if (ends && controller !== undefined) report.later(() => controller.abort(this.lossError));
    report.lost(this, wasHeld, (this.loss as Loss).reason);
  }

  renewed(leftMs: number): void {
    this.heartbeat.report.renewed(this, leftMs);
  }

  renewalFailed(error: HoldfastError, leftMs: number): void {
    this.heartbeat.report.renewalFailed(this, error, leftMs);
  }

  renewalUnanswered(leftMs: number): void {
    this.heartbeat.report.renewalUnanswered(this, leftMs);
  }

  requestFailed(error: HoldfastError, isOutage: boolean): void {
    this.heartbeat.report.requestFailed(error, isOutage);
  }

  unavailable(bound: "ttlMs" | "requestTimeoutMs" | "waitMs", isOutage: boolean): HoldfastError {
    const { store, report } = this.heartbeat;
    const { key, ttlMs } = this.request;
    const { requestTimeoutMs } = this.client;
    const limitMs = { ttlMs, requestTimeoutMs, waitMs: this.waiter?.waitMs }[bound];
    const error = unavailableError(store.name, key, `${bound} ${limitMs}`, this.lastError);
    if (isOutage) report.outage(error);
    return error;
  }
}
