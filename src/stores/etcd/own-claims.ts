/**
 * The claims that hang on etcd leases of this process, and when each of them ends by its own clock. Nobody else ends them while
 * the etcd leases live, so this process must: also those of clients that have crashed within it, and those of a swap whose
 * reply was lost.
 */
import type { Clock, Timer } from "../../platform/index.ts";
import {
  findClaim,
  type HeapOrder,
  heapInsert,
  heapRemove,
  heapUpdate,
  type LockRecord,
} from "../../record/index.ts";

export interface OwnClaim {
  endsAtMs: number;
  /** As in the record's claim. */
  promisedUntilMs: number;
}

interface Entry {
  readonly key: string;
  readonly claims: Map<string, OwnClaim>;
  /** When to look whether one of them has ended: at the first end, or earlier where that was put off. */
  dueMs: number;
  slot: number;
}

export interface OwnClaimsOptions {
  readonly clock: Clock;
  /** The time that ends are told in. */
  nowMs(): number;
  /** Drops what has ended from the record of a key. */
  settle(key: string): Promise<unknown>;
}

/** After a failure, and until the settled record is confirmed, how long until the next attempt. */
const RETRY_MS = 1_000;

export class OwnClaims {
  readonly #options: OwnClaimsOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #byDue: Entry[] = [];
  #timer: Timer | undefined;
  #timerMs = Number.POSITIVE_INFINITY;
  #closed = false;

  constructor(options: OwnClaimsOptions) {
    this.#options = options;
  }

  /** How many keys have any. */
  get size(): number {
    return this.#entries.size;
  }

  get(key: string, id: string): OwnClaim | undefined {
    return this.#entries.get(key)?.claims.get(id);
  }

  /**
   * A claim may be in the record from now on, and ends then. Said before the swap, since its reply may be lost; and since what the
   * swap was decided from is a guess, which may know nothing of the claim, nobody's end comes sooner by it than was known.
   */
  set(key: string, id: string, claim: OwnClaim): void {
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      entry = { key, claims: new Map(), dueMs: claim.endsAtMs, slot: 0 };
      this.#entries.set(key, entry);
      heapInsert(this.#byDue, entry, byDue);
    } else if (claim.endsAtMs < entry.dueMs) {
      entry.dueMs = claim.endsAtMs;
      heapUpdate(this.#byDue, entry, byDue);
    }
    const known = entry.claims.get(id);
    entry.claims.set(id, known === undefined ? claim : later(known, claim));
    this.#schedule();
  }

  /** The server certainly has this record, with these ends. What is not in it, or hangs on somebody else's etcd lease, is not ours. */
  reconcile(key: string, record: LockRecord, isOwn: (etcdLease: string) => boolean): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    let firstMs = entry.dueMs;
    for (const [id, own] of entry.claims) {
      const claim = findClaim(record, id);
      if (claim === undefined || !isOwn(claim.etcdLease)) {
        entry.claims.delete(id);
        continue;
      }
      own.endsAtMs = claim.expiresAtMs;
      own.promisedUntilMs = claim.promisedUntilMs;
      firstMs = Math.min(firstMs, own.endsAtMs);
    }
    if (entry.claims.size === 0) this.#remove(entry);
    else if (firstMs < entry.dueMs) {
      entry.dueMs = firstMs;
      heapUpdate(this.#byDue, entry, byDue);
      this.#schedule();
    }
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#entries.clear();
    this.#byDue.length = 0;
  }

  #remove(entry: Entry): void {
    this.#entries.delete(entry.key);
    heapRemove(this.#byDue, entry, byDue);
  }

  #schedule(): void {
    const first = this.#byDue[0];
    if (first === undefined || this.#closed || this.#timerMs <= first.dueMs) return;
    this.#timer?.cancel();
    this.#timerMs = first.dueMs;
    const delayMs = Math.max(0, first.dueMs - this.#options.nowMs());
    this.#timer = this.#options.clock.setTimer(delayMs, () => {
      this.#timerMs = Number.POSITIVE_INFINITY;
      this.#settleDue();
      this.#schedule();
    });
  }

  #settleDue(): void {
    const nowMs = this.#options.nowMs();
    for (let entry = this.#byDue[0]; entry !== undefined && entry.dueMs <= nowMs; entry = this.#byDue[0]) {
      const endsAtMs = firstEnd(entry);
      entry.dueMs = endsAtMs > nowMs ? endsAtMs : nowMs + RETRY_MS;
      heapUpdate(this.#byDue, entry, byDue);
      // An outage is told to whoever asks for something. This is asked again.
      if (endsAtMs <= nowMs) this.#options.settle(entry.key).catch(() => {});
    }
  }
}

function later(a: OwnClaim, b: OwnClaim): OwnClaim {
  return {
    endsAtMs: Math.max(a.endsAtMs, b.endsAtMs),
    promisedUntilMs: Math.max(a.promisedUntilMs, b.promisedUntilMs),
  };
}

function firstEnd({ claims }: Entry): number {
  let first = Number.POSITIVE_INFINITY;
  for (const { endsAtMs } of claims.values()) first = Math.min(first, endsAtMs);
  return first;
}

const byDue: HeapOrder<Entry> = {
  before: (a, b) => a.dueMs < b.dueMs,
  slotOf: (entry) => entry.slot,
  setSlot: (entry, slot) => {
    entry.slot = slot;
  },
};
