/**
 * Reentrant locks: bodies that run within each other share one claim. Each of them has a lease of its own, and the last lease that is
 * released gives the claim back.
 */

import { type Deferred, deferred } from "../platform/index.ts";
import type { ClaimRequest } from "../store/index.ts";
import { notHeldError } from "./claim-errors.ts";
import { Lease, type LeaseClaim, type LeaseState } from "./lease.ts";
import type { HoldfastWarning } from "./options.ts";

interface Share {
  /** The lease that the client has handed out. Collected only when no lease that shares its claim is left. */
  readonly root: Lease;
  leases: number;
}

/** One lease's part in a claim. */
export class SharedClaim implements LeaseClaim {
  readonly #claim: LeaseClaim;
  readonly #share: Share;
  #released = false;
  /** The next change of this lease, and that of the claim which is one as well. */
  #change: Deferred<void> | undefined;
  #claimChange: Promise<void> | undefined;

  private constructor(share: Share) {
    this.#share = share;
    this.#claim = share.root.claim;
    share.leases++;
  }

  /** The first lease of a claim that others may share. */
  static first(root: Lease): Lease {
    return new Lease(new SharedClaim({ root, leases: 0 }));
  }

  /** Another lease on the same claim. */
  another(): Lease {
    return new Lease(new SharedClaim(this.#share));
  }

  get request(): ClaimRequest {
    return this.#claim.request;
  }

  get fence(): bigint {
    return this.#claim.fence;
  }

  get held(): boolean {
    return !this.#released && this.#claim.held;
  }

  get signal(): AbortSignal {
    return this.#claim.signal;
  }

  get state(): LeaseState {
    const { state } = this.#claim;
    return this.#released ? { ...state, held: false, released: true } : state;
  }

  get over(): boolean {
    return this.#released || this.#claim.over;
  }

  set stays(on: boolean) {
    this.#claim.stays = on;
  }

  /** Not `Promise.race`: each change of the claim would leave a reaction behind on the promise of the release. */
  nextChange(): Promise<void> {
    const claimChange = this.#claim.nextChange();
    if (claimChange !== this.#claimChange) {
      const change = deferred<void>();
      this.#claimChange = claimChange;
      this.#change = change;
      void claimChange.then(change.resolve);
    }
    return (this.#change as Deferred<void>).promise;
  }

  assertHeld(): void {
    if (this.#released) throw notHeldError(this.request.key);
    this.#claim.assertHeld();
  }

  async extend(ttlMs: number): Promise<void> {
    this.assertHeld();
    await this.#claim.extend(ttlMs);
  }

  setRenewal(on: boolean): void {
    if (!this.#released) this.#claim.setRenewal(on);
    else if (on) this.assertHeld();
  }

  async release(): Promise<boolean> {
    if (this.#released) return false;
    this.#released = true;
    this.#change?.resolve();
    this.#share.leases--;
    return this.#share.leases === 0 ? this.#claim.release() : this.#claim.held;
  }

  detach(): void {
    this.#claim.detach();
  }

  warn(code: HoldfastWarning["code"], message: string, cause?: unknown): void {
    this.#claim.warn(code, message, cause);
  }
}
