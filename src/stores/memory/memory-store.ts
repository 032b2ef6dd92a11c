import {
  type AcquireAnswer,
  type AgreedGrant,
  acquire,
  bounds,
  type ClaimRef,
  type ClaimRequest,
  type Clock,
  checkInteger,
  checkQuery,
  checkRenewRef,
  checkRequest,
  confirm,
  describe,
  emptyRecord,
  type GrantListener,
  HoldfastError,
  invalid,
  isIdle,
  type KeyStatus,
  type LockRecord,
  type LookPage,
  type LookQuery,
  type QuorumMember,
  type RenewAnswer,
  type RenewRef,
  release,
  renew,
  settle,
  systemClock,
  type Turn,
  type Unsubscribe,
} from "../../core/index.ts";

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
  return new MemoryStore(options);
}

/** One key's record, and its place among all that were ever created, which is the order of listing. */
interface Entry {
  readonly key: string;
  readonly serial: number;
  readonly record: LockRecord;
}

/** Who is told of an owner's grants, and what has not been told yet. */
interface Listener {
  readonly owner: string;
  readonly call: GrantListener;
  refs: ClaimRef[];
}

/** How many records one page of a listing looks at, so that a rare prefix among millions does not block. */
const EXAMINED_PER_PAGE = 10_000;

class MemoryStore implements QuorumMember {
  readonly name = "memory";
  readonly durability = "ephemeral";
  readonly counts = true;
  readonly #clock: Clock;
  readonly #maxWaiters: number;
  /** Turns the monotonic clock into wall time that never jumps. */
  readonly #wallOffsetMs: number;
  readonly #entries = new Map<string, Entry>();
  readonly #listeners = new Map<string, Listener>();
  #serial = 0;
  #lastStamp = 0;
  #sweep: Iterator<Entry> | undefined;
  /** Where the last page of a listing ended, and how many records had been created by then. */
  #pages: { readonly cursor: string; readonly rest: Iterator<Entry>; readonly serial: number } | undefined;
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

  async acquire(request: ClaimRequest): Promise<AcquireAnswer> {
    checkRequest(request);
    const turn = this.#nextTurn();
    const entry = this.#entries.get(request.key) ?? this.#create(request.key, turn);
    const answer = acquire(entry.record, request, this.#maxWaiters, turn);
    this.#finish(entry, turn, answer.state === "held" ? request.id : undefined);
    return answer;
  }

  async renew(refs: readonly RenewRef[]): Promise<readonly RenewAnswer[]> {
    for (const ref of refs) checkRenewRef(ref);
    const turn = this.#nextTurn();
    const answers: RenewAnswer[] = [];
    for (const ref of refs) {
      const entry = this.#entries.get(ref.key);
      const answer: RenewAnswer = entry === undefined ? { state: "gone" } : renew(entry.record, ref, turn);
      answers.push(answer);
      if (entry !== undefined) this.#finish(entry, turn, answer.state === "held" ? ref.id : undefined);
    }
    return answers;
  }

  async release(refs: readonly ClaimRef[]): Promise<readonly boolean[]> {
    for (const ref of refs) checkRenewRef(ref);
    const turn = this.#nextTurn();
    const released: boolean[] = [];
    for (const ref of refs) {
      const entry = this.#entries.get(ref.key);
      const removed = entry !== undefined && release(entry.record, ref, turn);
      released.push(removed);
      if (entry !== undefined) this.#finish(entry, turn, removed ? ref.id : undefined);
    }
    return released;
  }

  async confirm(ref: ClaimRef, own: bigint, agreed: AgreedGrant): Promise<boolean> {
    checkRenewRef(ref);
    const turn = this.#nextTurn();
    // Also for a record that is made anew after this one was dropped.
    this.#lastStamp = Math.max(this.#lastStamp, Number(agreed.fence));
    const entry = this.#entries.get(ref.key);
    if (entry === undefined) return false;
    const confirmed = confirm(entry.record, ref, own, agreed, turn);
    this.#finish(entry, turn, undefined);
    return confirmed;
  }

  async look(query: LookQuery): Promise<LookPage> {
    checkQuery(query);
    const { nowMs } = this.#nextTurn();
    if ("prefix" in query) return this.#page(query, nowMs);
    const record = this.#entries.get(query.key)?.record ?? emptyRecord();
    return { keys: [describe(record, query.key, nowMs, query.maxClaims)] };
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
    this.#entries.clear();
    this.#listeners.clear();
    this.#sweep = undefined;
    this.#pages = undefined;
  }

  #nextTurn(): Turn {
    if (this.#closed) throw new HoldfastError("CLOSED", "The memory store is closed. Create another one.");
    const now = this.#clock.monotonicMs() + this.#wallOffsetMs;
    // Strictly growing across all keys, so a record that was dropped and made again cannot repeat a fence.
    this.#lastStamp = Math.max(this.#lastStamp + 1, Math.floor(now * 1_000));
    return { nowMs: Math.floor(now), stamp: BigInt(this.#lastStamp), granted: [] };
  }

  #create(key: string, turn: Turn): Entry {
    // Two records are looked at for each one created, so records whose claims all expired cannot pile up, and no
    // operation ever pays for sweeping them all.
    this.#sweepOne(turn);
    this.#sweepOne(turn);
    // A listing that nobody goes on with: an iterator that stands still keeps every former table of the map alive.
    if (this.#pages !== undefined && this.#serial - this.#pages.serial >= EXAMINED_PER_PAGE)
      this.#pages = undefined;
    const entry: Entry = { key, serial: ++this.#serial, record: emptyRecord() };
    this.#entries.set(key, entry);
    return entry;
  }

  #sweepOne(turn: Turn): void {
    this.#sweep ??= this.#entries.values();
    const next = this.#sweep.next();
    if (next.done) {
      this.#sweep = undefined;
      return;
    }
    settle(next.value.record, turn);
    this.#finish(next.value, turn, undefined);
  }

  /**
   * Drops the record when nothing is left of it, and tells the owners of what was granted, but for the claim whose
   * caller learns of it from the answer. Asking with an old token is not that: the claim is another caller's.
   */
  #finish(entry: Entry, turn: Turn, answeredId: string | undefined): void {
    if (isIdle(entry.record)) this.#drop(entry, turn);
    if (turn.granted.length === 0) return;
    for (const claim of turn.granted) {
      if (claim.id !== answeredId) this.#push(claim.owner, { key: entry.key, id: claim.id });
    }
    turn.granted.length = 0;
  }

  #drop(entry: Entry, turn: Turn): void {
    this.#entries.delete(entry.key);
    // Claims granted together take fences ahead of the stamp. A record made anew must start above all of them.
    if (entry.record.fence > turn.stamp) {
      this.#lastStamp = Math.max(this.#lastStamp, Number(entry.record.fence));
    }
  }

  #push(owner: string, ref: ClaimRef): void {
    const listener = this.#listeners.get(owner);
    if (listener === undefined) return;
    if (this.#toTell.length === 0) queueMicrotask(this.#tell);
    if (listener.refs.length === 0) this.#toTell.push(listener);
    listener.refs.push(ref);
  }

  #page(query: Extract<LookQuery, { prefix: string }>, nowMs: number): LookPage {
    const rest = this.#resume(query.cursor);
    const keys: KeyStatus[] = [];
    let cursor = "";
    for (let examined = 0; examined < EXAMINED_PER_PAGE && keys.length < query.limit; examined++) {
      const next = rest.next();
      if (next.done) {
        // Its place is used up, and whoever asks for this page again must be shown it again.
        this.#pages = undefined;
        return { keys };
      }
      cursor = String(next.value.serial);
      if (!next.value.key.startsWith(query.prefix)) continue;
      const status = describe(next.value.record, next.value.key, nowMs, query.maxClaims);
      if (status.heldCount + status.waitingCount > 0) keys.push(status);
    }
    this.#pages = { cursor, rest, serial: this.#serial };
    return { keys, cursor };
  }

  /** Goes on where the last page ended, or finds the place again when another listing came in between. */
  #resume(cursor: string | undefined): Iterator<Entry> {
    if (cursor !== undefined && cursor === this.#pages?.cursor) return this.#pages.rest;
    const rest = this.#entries.values();
    if (cursor === undefined) return rest;
    if (!/^\d{1,16}$/.test(cursor)) throw invalid(`cursor must come from the page before, not "${cursor}".`);
    return entriesAfter(Number(cursor), rest);
  }
}

function* entriesAfter(serial: number, entries: Iterable<Entry>): Generator<Entry> {
  for (const entry of entries) {
    if (entry.serial > serial) yield entry;
  }
}
