/**
 * When claims end, if they hang on etcd leases. A claim of this process ends when its time is over on this process's clock. A
 * claim of another process ends when its etcd lease has ended, or when that process removes it from the record.
 *
 * The state of other processes' leases is assumed, like the version of a record: the swap compares it.
 */
import type { Clock } from "../../platform/index.ts";
import { findClaim, type LockRecord, type RecordClaim, setEnd } from "../../record/index.ts";
import type {
  Answer,
  Asked,
  AssumedLeases,
  ChangeLifetimes,
  Lifetimes,
  LifetimesHost,
} from "../cas/index.ts";
import { OwnClaims } from "./own-claims.ts";
import { OwnTime } from "./own-time.ts";

/** The leases of this process, and what is known of those of others. A lease that has ended never comes back. */
export interface LeaseRegistry {
  /** Resolves when there is a lease for claims of this ttl; undefined if there is one already. */
  ready(ttlMs: number): Promise<void> | undefined;
  /** The name of a lease of this process that lives this long after each keep-alive. It may not be ready yet. */
  forLife(lifeMs: number): string;
  /** Whether the lease is this process's, and has not ended as far as the process knows. */
  isOwn(etcdLease: string): boolean;
  hasEnded(etcdLease: string): boolean;
  lifeMs(etcdLease: string): number;
  /** The time, on the monotonic clock, until which a lease of this process is proven to live. */
  provenUntilMs(etcdLease: string): number;
  /** Finds out which of these leases have ended. */
  check(etcdLeases: readonly string[]): Promise<void>;
  /** Never falls, and grows with each change by more than the grants that one change can make. */
  stamp(): bigint;
  /** Calls back when a lease has ended. Without a name, some may have ended unnoticed. A hint. */
  onEnd(listener: (etcdLease: string | undefined) => void): void;
}

/** The number of other processes' leases that one change compares as ended, and as alive. */
const MOST_COMPARED = 8;
/** A time that is past on every clock. */
const LONG_AGO = 0;
/** The stamp must have been heard within this time. */
const MAX_STAMP_AGE_MS = 60_000;

export class ClaimLifetimes implements Lifetimes {
  readonly time: OwnTime;
  readonly #leases: LeaseRegistry;
  readonly #clock: Clock;
  #own: OwnClaims;

  constructor(leases: LeaseRegistry, clock: Clock) {
    this.#leases = leases;
    this.#clock = clock;
    this.time = new OwnTime(clock, () => leases.stamp(), MAX_STAMP_AGE_MS);
    this.#own = this.#newOwnClaims(async () => {});
  }

  #newOwnClaims(settle: LifetimesHost["settle"]): OwnClaims {
    const nowMs = () => this.time.nowMs(this.#clock.monotonicMs());
    return new OwnClaims({ clock: this.#clock, nowMs, settle });
  }

  start({ settle, lookAgain }: LifetimesHost): void {
    this.#own = this.#newOwnClaims(settle);
    this.#leases.onEnd((ended) =>
      lookAgain(
        (record) =>
          ended === undefined ||
          record === undefined ||
          record.held.some(({ etcdLease }) => etcdLease === ended),
      ),
    );
  }

  ready(ttlMs: number): Promise<void> | undefined {
    return this.#leases.ready(ttlMs);
  }

  /** How many keys have claims that this process has to end. */
  get ownKeys(): number {
    return this.#own.size;
  }

  /** Says when the claims of a record end, as far as is known, before operations are applied to it. */
  begin(key: string, record: LockRecord, nowMs: number): LeaseChange {
    const change = new LeaseChange(key, record, nowMs, this.#leases, this.#own);
    for (const claim of [...record.held, ...record.queue]) {
      if (claim.etcdLease !== "") setEnd(record, claim, this.#end(change, claim));
    }
    return change;
  }

  #end(change: LeaseChange, claim: RecordClaim): number {
    const { key, nowMs } = change;
    const lifeMs = this.#leases.lifeMs(claim.etcdLease);
    if (this.#leases.hasEnded(claim.etcdLease) && change.drop(claim.etcdLease)) return LONG_AGO;
    if (!this.#leases.isOwn(claim.etcdLease)) {
      // The longest that it may live on if nobody shows a sign of life any more: what its former caller counts on is less.
      if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = nowMs + lifeMs;
      return nowMs + lifeMs;
    }
    const own = this.#own.get(key, claim.id);
    if (own !== undefined) {
      if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = own.promisedUntilMs;
      return own.endsAtMs;
    }
    // The claim names an etcd lease of this process that the process no longer knows, so its last renewal is unknown.
    const endsAtMs = nowMs + lifeMs;
    if (claim.promisedUntilMs !== 0) claim.promisedUntilMs = endsAtMs;
    this.#own.set(key, claim.id, { endsAtMs, promisedUntilMs: claim.promisedUntilMs });
    return endsAtMs;
  }

  /** The server certainly has this record. */
  confirm(key: string, record: LockRecord): void {
    this.#own.reconcile(key, record, (etcdLease) => this.#leases.isOwn(etcdLease));
  }

  /** An answer that promises no more than what is proven of the etcd lease that it hangs on. It was decided at `sentMs`. */
  proven(answer: Answer, etcdLease: string | undefined, sentMs: number): Answer {
    if (etcdLease === undefined || typeof answer !== "object" || !("expiresInMs" in answer)) return answer;
    const provenMs = Math.max(0, Math.floor(this.#leases.provenUntilMs(etcdLease) - sentMs));
    return provenMs < answer.expiresInMs ? { ...answer, expiresInMs: provenMs } : answer;
  }

  /** Finds out which etcd leases in these records live, and says when their claims end, for people to see. */
  async show(records: readonly { readonly key: string; readonly record: LockRecord }[], nowMs: number) {
    const claims = records.flatMap(({ key, record }) =>
      [...record.held, ...record.queue].map((claim) => ({ key, record, claim })),
    );
    const etcdLeases = new Set(
      claims.map(({ claim }) => claim.etcdLease).filter((etcdLease) => etcdLease !== ""),
    );
    await this.#leases.check([...etcdLeases]);
    for (const { key, record, claim } of claims) {
      if (claim.etcdLease !== "") setEnd(record, claim, this.#shownEnd(key, claim, nowMs));
    }
  }

  #shownEnd(key: string, claim: RecordClaim, nowMs: number): number {
    if (this.#leases.hasEnded(claim.etcdLease)) return LONG_AGO;
    const own = this.#leases.isOwn(claim.etcdLease) ? this.#own.get(key, claim.id) : undefined;
    return own?.endsAtMs ?? nowMs + Math.min(claim.ttlMs, this.#leases.lifeMs(claim.etcdLease));
  }

  close(): void {
    this.#own.close();
  }
}

/** What one change of a record means for etcd leases. */
export class LeaseChange implements ChangeLifetimes {
  readonly key: string;
  readonly nowMs: number;
  readonly #record: LockRecord;
  readonly #leases: LeaseRegistry;
  readonly #claims: OwnClaims;
  readonly #ended = new Set<string>();
  readonly #own = new Set<string>();
  #fresh = false;
  #moved = false;
  #isFull = false;
  #isGuessing = false;

  constructor(key: string, record: LockRecord, nowMs: number, etcdLeases: LeaseRegistry, claims: OwnClaims) {
    this.key = key;
    this.nowMs = nowMs;
    this.#record = record;
    this.#leases = etcdLeases;
    this.#claims = claims;
  }

  /** Whether claims that hang on this etcd lease, which has ended, are dropped by this change, and not by a later one. */
  drop(etcdLease: string): boolean {
    if (this.#ended.size < MOST_COMPARED) this.#ended.add(etcdLease);
    else if (!this.#ended.has(etcdLease)) this.#isFull = true;
    return this.#ended.has(etcdLease);
  }

  /**
   * Whether claims are left whose etcd leases have ended. (1) Nine processes die that hold or want a lock. (2) A change drops the claims of
   * eight, and is decided as if the ninth lived. (3) Whoever asked would be told that the lock is taken, by nobody. So such a change does
   * nothing else, and what was asked for is decided after it.
   */
  get isFull(): boolean {
    return this.#isFull;
  }

  /** Whether more etcd leases are taken to be alive than are compared. CachedRecord once it is said what the change takes for granted. */
  get isGuessing(): boolean {
    return this.#isGuessing;
  }

  /** Binds the claim of an operation to an etcd lease of this process. Returns that lease if the claim still exists. */
  keep(asked: Asked, answer: Answer): string | undefined {
    if (asked.verb === "settle" || !isKept(answer)) return undefined;
    const { id } = asked.verb === "acquire" ? asked.request : asked.ref;
    const claim = findClaim(this.#record, id);
    if (claim === undefined) return undefined;
    const lifeMs = claim.expiresAtMs - this.nowMs;
    if (!this.#leases.isOwn(claim.etcdLease) || this.#leases.lifeMs(claim.etcdLease) < lifeMs) {
      // Somebody may have been promised on the former etcd lease until just now, so this one must live as long from now on, for certain.
      if (claim.etcdLease !== "") this.#moved = true;
      claim.etcdLease = this.#leases.forLife(lifeMs);
    }
    if (asked.verb === "renew") this.#fresh = true;
    this.#own.add(claim.etcdLease);
    const { expiresAtMs: endsAtMs, promisedUntilMs } = claim;
    this.#claims.set(this.key, id, { endsAtMs, promisedUntilMs });
    return claim.etcdLease;
  }

  /** What the change takes for granted, now that all operations have been applied. */
  assumed({ isWriting, isAsked }: { readonly isWriting: boolean; readonly isAsked: boolean }): AssumedLeases {
    const alive = new Set<string>();
    // Those that a change writes beside are compared with it. Where nothing is written they are only looked at, so there can be any number.
    const most = isWriting ? MOST_COMPARED : Number.POSITIVE_INFINITY;
    for (const { etcdLease } of this.#record.held) {
      // What is known to have ended would make the same change fail for ever. It is dropped by the next one.
      if (etcdLease === "" || this.#leases.isOwn(etcdLease) || this.#leases.hasEnded(etcdLease)) continue;
      if (alive.size < most) alive.add(etcdLease);
      else if (!alive.has(etcdLease)) this.#isGuessing = true;
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
