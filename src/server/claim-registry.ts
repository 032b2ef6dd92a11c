/**
 * The claims that go through this server, for its metrics, limits and audit log. The store decides everything else: a claim that
 * is missing or stale here changes no answer.
 */
import { IdIndex } from "../record/index.ts";
import type { ClaimRef, GrantRef, HeldAnswer } from "../store/index.ts";
import type { Audit } from "./audit.ts";
import type { Requester } from "./callers.ts";
import type { Metrics } from "./metrics.ts";

/** A claim that goes through this server. Its `id` is its id and its key. */
export interface RegisteredClaim extends Requester {
  readonly id: string;
  readonly key: string;
  peer: Requester["peer"];
  held: boolean;
  /** The fence of its latest grant, if a reply or a push had it. */
  fence: bigint | undefined;
  sinceMs: number;
  expiresAtMs: number;
  idHash: number;
  idNext: this | undefined;
}

/** Claims per sweep, so that a sweep does not delay requests. */
const SWEPT_AT_ONCE = 20_000;

export class ClaimRegistry {
  readonly #claims = new IdIndex<RegisteredClaim>();
  /** The number of waiters of each key. */
  readonly #queues = new Map<string, number>();
  readonly #metrics: Metrics;
  readonly #audit: Audit;
  #waiting = 0;
  #sweep: Generator<RegisteredClaim> | undefined;

  constructor(metrics: Metrics, audit: Audit) {
    this.#metrics = metrics;
    this.#audit = audit;
    metrics.claims = () => ({
      held: this.#claims.size - this.#waiting,
      waiting: this.#waiting,
      longestQueue: this.#longestQueue(),
    });
  }

  has(ref: ClaimRef): boolean {
    return this.#find(ref) !== undefined;
  }

  waitersOf(key: string): number {
    return this.#queues.size === 0 ? 0 : (this.#queues.get(key) ?? 0);
  }

  /** The store answered that the claim is held. */
  held(ref: ClaimRef, requester: Requester, nowMs: number, { expiresInMs, fence }: HeldAnswer): void {
    let claim = this.#find(ref);
    if (claim === undefined) {
      claim = this.#add(ref, requester, true, nowMs);
      this.#metrics.grants++;
      this.#metrics.addWait(0);
    } else if (!claim.held) this.#grant(claim, nowMs);
    claim.expiresAtMs = nowMs + expiresInMs;
    if (claim.fence === fence) return;
    claim.peer = requester.peer ?? claim.peer;
    this.#setFence(claim, ref, fence);
  }

  /** The store answered that the claim waits. */
  waiting(ref: ClaimRef, requester: Requester, nowMs: number, expiresInMs: number): void {
    const claim = this.#find(ref) ?? this.#add(ref, requester, false, nowMs);
    claim.expiresAtMs = nowMs + expiresInMs;
  }

  /** The store pushed a grant. A push without a fence is followed by a heartbeat, whose answer has it. */
  granted(ref: GrantRef, nowMs: number): void {
    const claim = this.#find(ref);
    if (claim === undefined || claim.held) return;
    this.#grant(claim, nowMs);
    if (ref.fence !== undefined) this.#setFence(claim, ref, ref.fence);
  }

  released(ref: ClaimRef, nowMs: number): RegisteredClaim | undefined {
    const claim = this.#find(ref);
    if (claim === undefined) return undefined;
    this.#remove(claim);
    if (claim.held) this.#metrics.addHold(nowMs - claim.sinceMs);
    return claim;
  }

  /** The store answered that the claim is gone, although no release went through this server. */
  gone(ref: ClaimRef): void {
    const claim = this.#find(ref);
    if (claim !== undefined) this.#expire(claim);
  }

  /** Removes some of the expired claims. A claim that a changing index skips is found by a later sweep. */
  sweep(nowMs: number): void {
    this.#sweep ??= this.#claims.values();
    for (let count = 0; count < SWEPT_AT_ONCE; count++) {
      const { value, done } = this.#sweep.next();
      if (done === true) {
        this.#sweep = undefined;
        return;
      }
      // The iterator may return a claim that was removed meanwhile, and which was counted then.
      if (value.expiresAtMs <= nowMs && this.#claims.find(value.id) === value) this.#expire(value);
    }
  }

  #find(ref: ClaimRef): RegisteredClaim | undefined {
    return this.#claims.find(nameOf(ref));
  }

  #longestQueue(): number {
    let longest = 0;
    for (const length of this.#queues.values()) longest = Math.max(longest, length);
    return longest;
  }

  #add(ref: ClaimRef, { client, peer }: Requester, held: boolean, nowMs: number): RegisteredClaim {
    const { key } = ref;
    const claim: RegisteredClaim = {
      id: nameOf(ref),
      key,
      client,
      peer,
      held,
      fence: undefined,
      sinceMs: nowMs,
      expiresAtMs: nowMs,
      idHash: 0,
      idNext: undefined,
    };
    this.#claims.add(claim);
    client.claims++;
    if (!held) {
      this.#waiting++;
      this.#queues.set(key, this.waitersOf(key) + 1);
    }
    return claim;
  }

  #grant(claim: RegisteredClaim, nowMs: number): void {
    this.#metrics.grants++;
    this.#metrics.addWait(nowMs - claim.sinceMs);
    this.#leaveQueue(claim);
    claim.held = true;
    claim.sinceMs = nowMs;
  }

  #setFence(claim: RegisteredClaim, ref: ClaimRef, fence: bigint): void {
    claim.fence = fence;
    if (this.#audit.logsClaims) this.#audit.claim("granted", ref, claim, fence);
  }

  #remove(claim: RegisteredClaim): void {
    this.#claims.remove(claim);
    claim.client.claims--;
    if (!claim.held) this.#leaveQueue(claim);
  }

  #expire(claim: RegisteredClaim): void {
    this.#remove(claim);
    this.#metrics.expiries++;
    const { id, key, fence } = claim;
    if (claim.held) this.#audit.claim("lost", { key, id: id.slice(0, -key.length - 1) }, claim, fence);
  }

  #leaveQueue({ key }: RegisteredClaim): void {
    this.#waiting--;
    const left = this.waitersOf(key) - 1;
    if (left > 0) this.#queues.set(key, left);
    else this.#queues.delete(key);
  }
}

/** Unique, because neither part contains a line break. */
function nameOf(ref: ClaimRef): string {
  return `${ref.id}\n${ref.key}`;
}
