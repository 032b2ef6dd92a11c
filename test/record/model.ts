/**
 * The rules of a record told as plainly as possible: one list of claims in order of arrival, searched from end to end
 * for everything. It is the yardstick for the real machine, so it shares nothing with it but the types.
 */
import type {
  AcquireAnswer,
  ClaimRef,
  ClaimRequest,
  ClaimStatus,
  KeyStatus,
  RenewAnswer,
  RenewRef,
} from "../../src/store/store.ts";

export interface ModelClaim {
  /** The request of the latest caller. */
  request: ClaimRequest;
  expiresAtMs: number;
  /** Absent while it waits. */
  grant: { readonly fence: bigint; readonly acquiredAtMs: number } | undefined;
  /** Until when somebody may count on the lease from whom it was taken over. */
  promisedUntilMs: number;
}

/** The time and the stamp of the store. What ended by `expiredMs` is over. */
export interface Moment {
  readonly nowMs: number;
  readonly expiredMs: number;
  readonly stamp: bigint;
}

export class RecordModel {
  claims: ModelClaim[] = [];
  fence = 0n;
  /** Every claim that was ever granted, in order. */
  readonly granted: ModelClaim[] = [];

  get held(): ModelClaim[] {
    return this.claims.filter((claim) => claim.grant !== undefined);
  }

  /** Those who wait, in order of turn: the higher priority first, and who came earlier first among equals. */
  get queue(): ModelClaim[] {
    const waiting = this.claims.filter((claim) => claim.grant === undefined);
    // Sorting is stable, and the claims are in order of arrival.
    return waiting.sort((a, b) => b.request.priority - a.request.priority);
  }

  acquire(request: ClaimRequest, maxWaiters: number, moment: Moment): AcquireAnswer {
    this.settle(moment);
    const known = this.find(request.id);
    if (known !== undefined) return this.acquireAgain(known, request, moment);

    const ahead = this.queue.filter((claim) => claim.request.priority >= request.priority);
    const atOnce = ahead.length === 0 && this.fits(request);
    if (!atOnce && !request.wait) return { state: "refused", reason: "contended" };
    if (!atOnce && this.queue.length >= maxWaiters) return { state: "refused", reason: "queue-full" };

    const claim = {
      request,
      expiresAtMs: moment.nowMs + request.ttlMs,
      grant: undefined,
      promisedUntilMs: 0,
    };
    this.claims.push(claim);
    this.settle(moment);
    return this.answer(claim, moment);
  }

  acquireAgain(claim: ModelClaim, request: ClaimRequest, moment: Moment): AcquireAnswer {
    const { weight, limit, priority, token } = claim.request;
    if (weight !== request.weight || limit !== request.limit || priority !== request.priority) {
      return { state: "refused", reason: "id-reused" };
    }
    if (claim.grant === undefined && !request.wait && token !== request.token) {
      return { state: "refused", reason: "contended" };
    }
    if (claim.grant === undefined && !request.wait) {
      this.remove(claim);
      this.settle(moment);
      return { state: "refused", reason: "contended" };
    }
    if (claim.grant !== undefined && token !== request.token) {
      claim.grant = this.newGrant(moment);
      claim.promisedUntilMs = claim.expiresAtMs;
    }
    claim.request = request;
    this.prolong(claim, moment.nowMs + request.ttlMs);
    return this.answer(claim, moment);
  }

  renew(ref: RenewRef, moment: Moment): RenewAnswer {
    this.settle(moment);
    const claim = this.find(ref.id);
    if (claim === undefined) return { state: "gone" };
    if (claim !== this.findOwn(ref)) return { state: "gone", takenOverBy: claim.request.owner };
    this.prolong(claim, moment.nowMs + (ref.ttlMs ?? claim.request.ttlMs));
    return this.answer(claim, moment);
  }

  release(ref: ClaimRef, moment: Moment): boolean {
    this.settle(moment);
    const claim = this.findOwn(ref);
    if (claim === undefined) return false;
    const isPromised = moment.expiredMs < claim.promisedUntilMs;
    if (isPromised && ref.token !== undefined) {
      claim.request = { ...claim.request, token: "" };
      claim.expiresAtMs = claim.promisedUntilMs;
    } else {
      this.remove(claim);
      this.settle(moment);
    }
    return true;
  }

  /** Who has reached the end of their life is gone; then the head of the queue is let in for as long as it fits. */
  settle(moment: Moment): void {
    this.claims = this.claims.filter((claim) => moment.expiredMs < claim.expiresAtMs);
    for (;;) {
      const head = this.queue[0];
      if (head === undefined || !this.fits(head.request)) return;
      head.grant = this.newGrant(moment);
      this.granted.push(head);
    }
  }

  describe(key: string, nowMs: number, maxClaims: number): KeyStatus {
    const alive = (claim: ModelClaim) => nowMs < claim.expiresAtMs;
    const held = this.held.filter(alive).sort((a, b) => Number(a.grant!.fence - b.grant!.fence));
    const waiting = this.queue.filter(alive);
    return {
      key,
      fence: this.fence,
      held: held.slice(0, maxClaims).map((claim) => this.status(claim, nowMs)),
      heldCount: held.length,
      heldWeight: sum(held.map((claim) => claim.request.weight)),
      waiting: waiting.slice(0, maxClaims).map((claim) => this.status(claim, nowMs)),
      waitingCount: waiting.length,
    };
  }

  /** The one rule of granting: all weights together stay within every limit. */
  private fits(request: ClaimRequest): boolean {
    const together = [...this.held.map((claim) => claim.request), request];
    const weight = sum(together.map((one) => one.weight));
    return together.every((one) => weight <= one.limit);
  }

  private newGrant(moment: Moment): { fence: bigint; acquiredAtMs: number } {
    this.fence += 1n;
    if (this.fence < moment.stamp) this.fence = moment.stamp;
    return { fence: this.fence, acquiredAtMs: moment.nowMs };
  }

  private prolong(claim: ModelClaim, untilMs: number): void {
    claim.expiresAtMs = Math.max(claim.expiresAtMs, untilMs);
  }

  private find(id: string): ModelClaim | undefined {
    return this.claims.find((claim) => claim.request.id === id);
  }

  private findOwn(ref: ClaimRef): ModelClaim | undefined {
    const claim = this.find(ref.id);
    const isOwn = ref.token === undefined || ref.token === claim?.request.token;
    return isOwn ? claim : undefined;
  }

  private remove(claim: ModelClaim): void {
    this.claims = this.claims.filter((other) => other !== claim);
  }

  private answer(claim: ModelClaim, { nowMs, expiredMs }: Moment): AcquireAnswer & RenewAnswer {
    const expiresInMs = claim.expiresAtMs - nowMs;
    if (claim.grant !== undefined) return { state: "held", ...claim.grant, expiresInMs };
    const firstHolderEndsMs = Math.min(...this.held.map((holder) => holder.expiresAtMs));
    const headEndsMs = this.queue[0]!.expiresAtMs;
    const isHead = claim === this.queue[0];
    const retryAtMs = isHead ? firstHolderEndsMs : Math.max(firstHolderEndsMs, headEndsMs);
    return { state: "waiting", expiresInMs, retryInMs: retryAtMs - expiredMs, fence: this.fence };
  }

  private status(claim: ModelClaim, nowMs: number): ClaimStatus {
    const { id, weight, limit, priority, ttlMs, owner, info, application } = claim.request;
    const expiresInMs = claim.expiresAtMs - nowMs;
    const common = { id, weight, limit, priority, ttlMs, owner, info, application, expiresInMs };
    return claim.grant === undefined
      ? { ...common, state: "waiting" }
      : { ...common, state: "held", ...claim.grant };
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
