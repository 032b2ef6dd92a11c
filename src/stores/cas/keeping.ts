/**
 * Lives without a clock that all share: how long claims live where they hang on keepers.
 *
 * A claim of this process ends when its time is up here. A claim of another process ends when its keeper has ended, or when
 * that process takes it out of the record. What is thought of others' keepers is a guess like the version of a record: the
 * swap compares it.
 */
import type { Clock } from "../../platform/index.ts";
import { findClaim, type LockRecord, type RecordClaim, setEnd } from "../../record/index.ts";
import type { Answer, Asked } from "./combine.ts";
import type { AssumedKeepers, Keepers } from "./driver.ts";
import { OwnClaims } from "./own-claims.ts";

/** How many keepers of others one change takes for ended, and for alive. Each is one more comparison for the database. */
const MOST_COMPARED = 8;
/** A time that is past on every clock. */
const LONG_AGO = 0;

export interface KeepingOptions {
  readonly keepers: Keepers;
  readonly clock: Clock;
  nowMs(): number;
  settle(key: string): Promise<unknown>;
}

export class Keeping {
  readonly #keepers: Keepers;
  readonly #own: OwnClaims;

  constructor({ keepers, ...options }: KeepingOptions) {
    this.#keepers = keepers;
    this.#own = new OwnClaims(options);
  }

  /** How many keys have claims that this process has to end. */
  get ownKeys(): number {
    return this.#own.size;
  }

  /** Says when the claims of a record end, as far as is known, before operations are applied to it. */
  begin(key: string, record: LockRecord, nowMs: number): KeptChange {
    const change = new KeptChange(key, record, nowMs, this.#keepers, this.#own);
    for (const claim of [...record.held, ...record.queue]) {
      if (claim.keeper !== "") setEnd(record, claim, this.#end(change, claim));
    }
    return change;
  }

  #end(change: KeptChange, claim: RecordClaim): number {
    const { key, nowMs } = change;
    const lifeMs = this.#keepers.lifeMs(claim.keeper);
    if (this.#keepers.hasEnded(claim.keeper) && change.drop(claim.keeper)) return LONG_AGO;
    if (!this.#keepers.isOwn(claim.keeper)) {
      // The longest that it may live on if nobody shows a sign of life any more: what its former caller counts on is less.
      if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = nowMs + lifeMs;
      return nowMs + lifeMs;
    }
    const own = this.#own.get(key, claim.id);
    if (own !== undefined) {
      if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = own.promisedUntilMs;
      return own.endsAtMs;
    }
    // It hangs on a keeper of this process, which does not know it: nothing is known of when it was last renewed.
    const endsAtMs = nowMs + lifeMs;
    if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = endsAtMs;
    this.#own.set(key, claim.id, { endsAtMs, promisedUntilMs: claim.promisedUntilMs });
    return endsAtMs;
  }

  /** The server certainly has this record. */
  confirm(key: string, record: LockRecord): void {
    this.#own.reconcile(key, record, (keeper) => this.#keepers.isOwn(keeper));
  }

  /** An answer that promises no more than what is proven of the keeper that it hangs on. It was decided at `sentMs`. */
  proven(answer: Answer, keeper: string | undefined, sentMs: number): Answer {
    if (keeper === undefined || typeof answer !== "object" || !("expiresInMs" in answer)) return answer;
    const provenMs = Math.max(0, Math.floor(this.#keepers.provenUntilMs(keeper) - sentMs));
    return provenMs < answer.expiresInMs ? { ...answer, expiresInMs: provenMs } : answer;
  }

  /** Finds out which keepers in these records live, and says when their claims end, for people to see. */
  async show(records: readonly { readonly key: string; readonly record: LockRecord }[], nowMs: number) {
    const claims = records.flatMap(({ key, record }) =>
      [...record.held, ...record.queue].map((claim) => ({ key, record, claim })),
    );
    const keepers = new Set(claims.map(({ claim }) => claim.keeper).filter((keeper) => keeper !== ""));
    await this.#keepers.check([...keepers]);
    for (const { key, record, claim } of claims) {
      if (claim.keeper !== "") setEnd(record, claim, this.#shownEnd(key, claim, nowMs));
    }
  }

  #shownEnd(key: string, claim: RecordClaim, nowMs: number): number {
    if (this.#keepers.hasEnded(claim.keeper)) return LONG_AGO;
    const own = this.#keepers.isOwn(claim.keeper) ? this.#own.get(key, claim.id) : undefined;
    return own?.endsAtMs ?? nowMs + Math.min(claim.ttlMs, this.#keepers.lifeMs(claim.keeper));
  }

  close(): void {
    this.#own.close();
  }
}

/** What one change of a record means for keepers. */
export class KeptChange {
  readonly key: string;
  readonly nowMs: number;
  readonly #record: LockRecord;
  readonly #keepers: Keepers;
  readonly #claims: OwnClaims;
  readonly #ended = new Set<string>();
  readonly #own = new Set<string>();
  #fresh = false;
  #moved = false;
  #isFull = false;
  #isGuessing = false;

  constructor(key: string, record: LockRecord, nowMs: number, keepers: Keepers, claims: OwnClaims) {
    this.key = key;
    this.nowMs = nowMs;
    this.#record = record;
    this.#keepers = keepers;
    this.#claims = claims;
  }

  /** Whether claims that hang on this keeper, which has ended, are dropped by this change, and not by a later one. */
  drop(keeper: string): boolean {
    if (this.#ended.size < MOST_COMPARED) this.#ended.add(keeper);
    else if (!this.#ended.has(keeper)) this.#isFull = true;
    return this.#ended.has(keeper);
  }

  /**
   * Whether claims are left whose keepers have ended. (1) Nine processes die that hold or want a lock. (2) A change drops the claims of
   * eight, and is decided as if the ninth lived. (3) Whoever asked would be told that the lock is taken, by nobody. So such a change does
   * nothing else, and what was asked for is decided after it.
   */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Whether more keepers are taken to be alive than are compared. CachedRecord once it is said what the change takes for granted. */
  get isGuessing(): boolean {
    return this.#isGuessing;
  }

  /** Hangs the claim that an operation was about on a keeper of this process, and tells which, if it is still there. */
  keep(asked: Asked, answer: Answer): string | undefined {
    if (asked.verb === "settle" || !isKept(answer)) return undefined;
    const { id } = asked.verb === "acquire" ? asked.request : asked.ref;
    const claim = findClaim(this.#record, id);
    if (claim === undefined) return undefined;
    const lifeMs = claim.expiresAtMs - this.nowMs;
    if (!this.#keepers.isOwn(claim.keeper) || this.#keepers.lifeMs(claim.keeper) < lifeMs) {
      // Somebody may have been promised on the former keeper until just now, so this one must live as long from now on, for certain.
      if (claim.keeper !== "") this.#moved = true;
      claim.keeper = this.#keepers.forLife(lifeMs);
    }
    if (asked.verb === "renew") this.#fresh = true;
    this.#own.add(claim.keeper);
    const { expiresAtMs: endsAtMs, promisedUntilMs } = claim;
    this.#claims.set(this.key, id, { endsAtMs, promisedUntilMs });
    return claim.keeper;
  }

  /** What the change takes for granted, now that all operations have been applied. */
  assumed({
    isWriting,
    isAsked,
  }: {
    readonly isWriting: boolean;
    readonly isAsked: boolean;
  }): AssumedKeepers {
    const alive = new Set<string>();
    // Those that a change writes beside are compared with it. Where nothing is written they are only looked at, so there can be any number.
    const most = isWriting ? MOST_COMPARED : Number.POSITIVE_INFINITY;
    for (const { keeper } of this.#record.held) {
      // What is known to have ended would make the same change fail for ever. It is dropped by the next one.
      if (keeper === "" || this.#keepers.isOwn(keeper) || this.#keepers.hasEnded(keeper)) continue;
      if (alive.size < most) alive.add(keeper);
      else if (!alive.has(keeper)) this.#isGuessing = true;
    }
    const moved = this.#moved;
    const fresh = this.#fresh || moved;
    return { own: [...this.#own], fresh, moved, isAsked, alive: [...alive], ended: [...this.#ended] };
  }
}

/** Whether an answer leaves a claim behind: one that waits or is held, or one that was released and yet is promised. */
function isKept(answer: Answer): boolean {
  if (typeof answer !== "object") return answer === true;
  return answer.state === "held" || answer.state === "waiting";
}
