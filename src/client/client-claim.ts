/** A claim of this client with the calls that locks and leases make. Each call is an event of the machine in claim.ts. */
import { deferred } from "../platform/index.ts";
import * as events from "./claim-events.ts";
import type { AcquireResult, OnWaiting } from "./claim-outcomes.ts";
import { ClaimRunner, live, type Open } from "./claim-runner.ts";
import { Lease, type LeaseClaim } from "./lease.ts";

const no = () => false;

/** Numbers the calls of `extend`. */
let tickets = 0;

export class ClientClaim extends ClaimRunner implements LeaseClaim {
  // Calls of locks.

  /** Asks the store for the lock if it is free at once. */
  tryAcquire(): Promise<AcquireResult> {
    return this.#start(0, true, undefined);
  }

  /** Asks the store, and waits in its queue for up to `waitMs` if the request says so. */
  acquire(waitMs: number, onWaiting: OnWaiting): Promise<Lease> {
    return this.#start(waitMs, false, onWaiting) as Promise<Lease>;
  }

  #start(waitMs: number, isTry: boolean, onWaiting: OnWaiting): Promise<AcquireResult> {
    if (this.namedByCaller) this.heartbeat.reserve(this.request);
    const { promise, resolve, reject } = deferred<AcquireResult>();
    this.waiter = { resolve, reject, waitMs, isTry, onWaiting };
    events.asked(live<"asking">(this), waitMs, this.now());
    this.heartbeat.report.asked(this, waitMs, false);
    this.settle();
    return promise;
  }

  /** Gives up asking or waiting. The acquire rejects once the claim is gone, or at once if the claim stays where it is. */
  cancel(reason: unknown, detach: boolean): void {
    if (this.phase !== "asking" && this.phase !== "waiting") return;
    if (detach) {
      this.detach();
      this.waiter?.reject(reason);
    } else {
      events.cancelled(live(this), "signal", reason, this.now());
      this.settle();
    }
  }

  // Calls of leases. ClaimOutcomes has those that change nothing.

  /** Proves the lease for `ttlMs` from now on, or rejects. */
  extend(ttlMs: number): Promise<void> {
    this.assertHeld();
    const call = deferred<void>();
    this.extendCalls ??= new Map();
    this.extendCalls.set(++tickets, call);
    events.extendAsked(live<"held">(this), ttlMs, tickets, this.now());
    this.heartbeat.report.extending(this, ttlMs, call.promise);
    this.settle();
    return call.promise;
  }

  /** Stops or starts the lease's own heartbeats. Throws like `assertHeld` if the lease is over and cannot be started. */
  setRenewal(on: boolean): void {
    const isHeld = this.held;
    if (this.over && on) this.assertHeld();
    if (this.over || on === this.renews) return;
    events.renewalSwitched(live<Open>(this), on);
    if (isHeld) this.keep(on);
    this.settle();
  }

  /** Gives the claim back, and stops all that keeps it alive first. Returns whether it was still held. */
  release(): Promise<boolean> {
    const nowMs = this.now();
    const wasHeld = this.look(nowMs);
    if (this.phase === "ended") return Promise.resolve(false);
    // The first call of release reports the result.
    if (this.phase === "leaving") return this.#departed().then(no, no);
    events.released(live<Open>(this), nowMs);
    // A lease that is to be won again was counted as lost.
    if (wasHeld) this.heartbeat.stats.released++;
    else this.heartbeat.report.cancelled(this, "released", true);
    this.settle();
    return this.#departed();
  }

  /** Ends this client's part in the claim and leaves the claim to its ttl, or to a caller that goes on with it. */
  detach(): void {
    if (this.over) return;
    const { report } = this.heartbeat;
    const wasHeld = this.phase === "held";
    events.detached(live(this));
    if (wasHeld) report.detached(this);
    else report.cancelled(this, "detached", this.fence !== 0n);
    this.settle();
  }

  protected newLease(): Lease {
    const lease = new Lease(this);
    this.lease = lease;
    return lease;
  }

  #departed(): Promise<boolean> {
    return this.departure?.promise ?? Promise.resolve(false);
  }
}
