import { type Clock, systemClock } from "../../platform/index.ts";
import {
  acquire,
  confirm,
  describe,
  emptyRecord,
  isIdle,
  type LockRecord,
  release,
  renew,
  settle,
  type Turn,
} from "../../record/index.ts";
import {
  type AcquireAnswer,
  type AgreedGrant,
  bounds,
  type ClaimRef,
  type ClaimRequest,
  checkInteger,
  checkOptionNames,
  checkQuery,
  checkRenewRef,
  checkRequest,
  closedStore,
  type GrantListener,
  type GrantRef,
  invalid,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RenewAnswer,
  type RenewRef,
  type Unsubscribe,
} from "../../store/index.ts";
import { Entries, type Entry, type Place } from "./entries.ts";
import { GrantList } from "./grant-list.ts";

export interface MemoryStoreOptions {
  /** How many claims may wait for one key before `QUEUE_FULL`. Default 10,000. */
  readonly maxWaiters?: number;
  /** Where time comes from. Default: this machine. */
  readonly clock?: Clock;
}

/**
 * A store in the memory of this process: for one process, for tests, and inside the server.
 *
 * Its claims and fences end with the process (durability `ephemeral`). Fences still grow across restarts, as long as
 * the machine's wall clock does. Expiry runs on the monotonic clock, so setting the wall clock changes nothing.
 *
 * @example
 * const locks = createLocks(memoryStore());
 */
export function memoryStore(options: MemoryStoreOptions = {}): QuorumMember {
  checkOptionNames("memoryStore", options, { maxWaiters: true, clock: true });
  return new MemoryStore(options);
}

/** Who is told of an owner's grants, and what has not been told yet. */
interface Listener {
  readonly owner: string;
  readonly call: GrantListener;
  refs: GrantRef[];
}

/** How many records are looked at for each one that is created, while there are too many. */
const SWEPT_PER_RECORD = 4;

/** Fewer records than this are not worth sweeping. */
const MIN_SWEPT_SIZE = 1_000;

/** How many records one page of a listing looks at, so that a rare prefix among millions does not block. */
const EXAMINED_PER_PAGE = 10_000;

/** Calls back at the end of the current turn, like `queueMicrotask` but without the context that Node adds to that. */
const soon = Promise.resolve();

class MemoryStore implements QuorumMember {
  readonly name = "memory";
  readonly durability = "ephemeral";
  readonly counts = true;
  readonly #clock: Clock;
  readonly #maxWaiters: number;
  /** Turns the monotonic clock into wall time that never jumps. */
  readonly #wallOffsetMs: number;
  /** How far sweeping has come, and from how many records on it goes on. */
  readonly #sweep: Place = { next: undefined };
  #sweepFromSize = MIN_SWEPT_SIZE;
  /** Where the latest page of a listing ended, and the cursor that says so. */
  readonly #page: Place & { cursor: string | undefined } = { cursor: undefined, next: undefined };
  #entries = new Entries(this.#sweep, this.#page);
  readonly #listeners = new Map<string, Listener>();
  #lastStamp = 0;
  /** The present turn. There is only ever one, so it is made once. */
  readonly #granted = new GrantList();
  readonly #turn = { nowMs: 0, expiredMs: 0, stamp: 0n, granted: this.#granted };
  /** Who has something to be told at the end of the current turn of the event loop. */
  #toTell: Listener[] = [];
  readonly #tell = () => {
    const listeners = this.#toTell;
    this.#toTell = [];
    for (const listener of listeners) {
      const { refs } = listener;
      listener.refs = [];
      if (this.#listeners.get(listener.owner) === listener) listener.call(refs);
    }
  };
  #closed = false;

  constructor(options: MemoryStoreOptions) {
    this.#clock = options.clock ?? systemClock;
    this.#maxWaiters = checkInteger(
      "maxWaiters",
      options.maxWaiters ?? bounds.defaultMaxWaiters,
      0,
      1_000_000,
    );
    this.#wallOffsetMs = this.#clock.wallMs() - this.#clock.monotonicMs();
  }

  acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    return this.#answer(this.#acquire, request);
  }

  renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    return this.#answer(this.#renew, refs);
  }

  release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    return this.#answer(this.#release, refs);
  }

  async confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean> {
    checkRenewRef(ref);
    const turn = this.#nextTurn();
    // Also for a record that is made anew after this one was dropped.
    this.#lastStamp = Math.max(this.#lastStamp, Number(agreed.fence));
    const entry = this.#entries.find(ref.key);
    if (entry === undefined) return false;
    const record = this.#entries.open(entry);
    const confirmed = confirm(record, ref, own, agreed, turn);
    this.#finish(entry, record, turn, undefined);
    return confirmed;
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    const { nowMs } = this.#nextTurn();
    if ("prefix" in query) return this.#list(query, nowMs);
    const entry = this.#entries.find(query.key);
    if (entry !== undefined) return { keys: [this.#describe(entry, query, nowMs)] };
    return { keys: [describe(emptyRecord(), query.key, nowMs, query.maxClaims)] };
  }

  onGrant(owner: string, listener: GrantListener): Unsubscribe {
    const entry: Listener = { owner, call: listener, refs: [] };
    this.#listeners.set(owner, entry);
    return () => {
      if (this.#listeners.get(owner) === entry) this.#listeners.delete(owner);
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#entries = new Entries();
    this.#listeners.clear();
    this.#sweep.next = undefined;
    this.#page.next = undefined;
  }

  /** Like an async method, at half its price: every lock cycle pays it twice. */
  #answer<A, T>(verb: (argument: A) => T, argument: A): Promise<T> {
    try {
      return Promise.resolve(verb.call(this, argument));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  #acquire(request: ClaimRequest): AcquireAnswer {
    checkRequest(request);
    const turn = this.#nextTurn();
    const entry = this.#entries.find(request.key) ?? this.#create(request.key, turn);
    const record = this.#entries.open(entry);
    const answer = acquire(record, request, this.#maxWaiters, turn);
    this.#finish(entry, record, turn, answer.state === "held" ? request.id : undefined);
    return answer;
  }

  #renew(refs: readonly RenewRef[]): readonly RenewAnswer[] {
    for (const ref of refs) checkRenewRef(ref);
    this.#nextTurn();
    return refs.map(this.#renewOne, this);
  }

  #renewOne(ref: RenewRef): RenewAnswer {
    const entry = this.#entries.find(ref.key);
    if (entry === undefined) return { state: "gone" };
    const record = this.#entries.open(entry);
    const answer = renew(record, ref, this.#turn);
    this.#finish(entry, record, this.#turn, answer.state === "held" ? ref.id : undefined);
    return answer;
  }

  #release(refs: readonly ClaimRef[]): readonly boolean[] {
    for (const ref of refs) checkRenewRef(ref);
    this.#nextTurn();
    return refs.map(this.#releaseOne, this);
  }

  #releaseOne(ref: ClaimRef): boolean {
    const entry = this.#entries.find(ref.key);
    if (entry === undefined) return false;
    const record = this.#entries.open(entry);
    const removed = release(record, ref, this.#turn);
    this.#finish(entry, record, this.#turn, removed ? ref.id : undefined);
    return removed;
  }

  #nextTurn(): Turn {
    if (this.#closed) throw closedStore("memory");
    const now = this.#clock.monotonicMs() + this.#wallOffsetMs;
    // Strictly growing across all keys, so a record that was dropped and made again cannot repeat a fence.
    this.#lastStamp = Math.max(this.#lastStamp + 1, Math.floor(now * 1_000));
    this.#turn.nowMs = Math.floor(now);
    this.#turn.expiredMs = this.#turn.nowMs;
    this.#turn.stamp = BigInt(this.#lastStamp);
    return this.#turn;
  }

  #create(key: string, turn: Turn): Entry {
    if (this.#entries.size >= this.#sweepFromSize) this.#sweepSome(turn);
    return this.#entries.create(key);
  }

  /**
   * Looks at a few records for each one created, once there are twice as many as the last sweep left. So records whose
   * claims all expired cannot pile up, no operation pays for sweeping them all, and nobody sweeps where nothing grows.
   */
  #sweepSome(turn: Turn): void {
    for (let count = 0; count < SWEPT_PER_RECORD; count++) {
      const entry = this.#sweep.next ?? this.#entries.first;
      if (entry === undefined) return;
      this.#sweep.next = entry.after;
      const record = this.#entries.open(entry);
      settle(record, turn);
      this.#finish(entry, record, turn, undefined);
      if (this.#sweep.next === undefined) {
        this.#sweepFromSize = Math.max(MIN_SWEPT_SIZE, 2 * this.#entries.size);
        return;
      }
    }
  }

  /**
   * Drops the record when nothing is left of it, and tells the owners of what was granted, but for the claim whose
   * caller learns of it from the answer. Asking with an old token is not that: the claim is another caller's.
   */
  #finish(entry: Entry, record: LockRecord, turn: Turn, answeredId: string | undefined): void {
    if (isIdle(record)) this.#drop(entry, record, turn);
    this.#entries.close(entry, record);
    const granted = this.#granted;
    for (let nth = 0; nth < granted.size; nth++) {
      const { id, owner, fence } = granted.at(nth);
      if (id !== answeredId) this.#push(owner, { key: entry.id, id, fence });
    }
    granted.clear();
  }

  #drop(entry: Entry, record: LockRecord, turn: Turn): void {
    this.#entries.remove(entry);
    // Claims granted together take fences ahead of the stamp. A record made anew must start above all of them.
    if (record.fence > turn.stamp) this.#lastStamp = Math.max(this.#lastStamp, Number(record.fence));
  }

  #push(owner: string, ref: GrantRef): void {
    const listener = this.#listeners.get(owner);
    if (listener === undefined) return;
    if (this.#toTell.length === 0) void soon.then(this.#tell);
    if (listener.refs.length === 0) this.#toTell.push(listener);
    listener.refs.push(ref);
  }

  #list(query: Extract<LookQuery, { prefix: string }>, nowMs: number): LookPage {
    let next = this.#resume(query.cursor);
    const keys: KeyStatus[] = [];
    let cursor = "";
    for (let examined = 0; examined < EXAMINED_PER_PAGE && keys.length < query.limit; examined++) {
      if (next === undefined) return { keys };
      cursor = String(next.serial);
      if (next.id.startsWith(query.prefix)) {
        const status = this.#describe(next, query, nowMs);
        if (status.heldCount + status.waitingCount > 0) keys.push(status);
      }
      next = next.after;
    }
    this.#page.cursor = cursor;
    this.#page.next = next;
    return { keys, cursor };
  }

  #describe(entry: Entry, { maxClaims }: LookQuery, nowMs: number): KeyStatus {
    const record = this.#entries.open(entry);
    const status = describe(record, entry.id, nowMs, maxClaims);
    this.#entries.close(entry, record);
    return status;
  }

  /** Goes on where the last page ended, or finds the place again when another listing came in between. */
  #resume(cursor: string | undefined): Entry | undefined {
    if (cursor === undefined) return this.#entries.first;
    if (cursor === this.#page.cursor && this.#page.next !== undefined) return this.#page.next;
    if (!/^\d{1,16}$/.test(cursor))
      throw invalid(`cursor must be the cursor of the previous page, not "${cursor}".`);
    return this.#entries.afterSerial(Number(cursor));
  }
}
