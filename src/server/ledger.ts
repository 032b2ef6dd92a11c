/**
 * What this server knows of the claims that go through it, for its metrics and its limits. The store decides everything
 * else: a claim that is missing here, or should not be here, changes no answer.
 */
import { type ClaimRef, IdIndex } from "../core/index.ts";
import type { Metrics } from "./metrics.ts";
import type { Owner } from "./ownership.ts";

/** Who asks: for the limit on a client's claims, and as their owner. */
export interface Client extends Owner {
  /** For people: who it is. */
  readonly name: string;
  /** How many claims it has. */
  claims: number;
  /** How many calls and sessions it has under way, and how many of the calls wait or watch. */
  calls: number;
  waitingCalls: number;
  watches: number;
}

export function newClient(name: string, prefix: string): Client {
  return { name, prefix, claims: 0, calls: 0, waitingCalls: 0, watches: 0 };
}

class Entry {
  /** Its id and its key: a client may use one id for very many keys, and a key may have very many claims. */
  readonly id: string;
  readonly key: string;
  readonly client: Client;
  held: boolean;
  sinceMs: number;
  expiresAtMs: number;
  idHash = 0;
  idNext: this | undefined = undefined;

  constructor(
    name: string,
    key: string,
    client: Client,
    held: boolean,
    sinceMs: number,
    expiresAtMs: number,
  ) {
    this.id = name;
    this.key = key;
    this.client = client;
    this.held = held;
    this.sinceMs = sinceMs;
    this.expiresAtMs = expiresAtMs;
  }
}

/** How many entries are looked at in each turn of the sweep. */
const SWEPT_AT_ONCE = 20_000;

export class Ledger {
  readonly #entries = new IdIndex<Entry>();
  /** How many claims wait for a key. */
  readonly #queues = new Map<string, number>();
  readonly #metrics: Metrics;
  #waiting = 0;
  #sweep: Generator<Entry> | undefined;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
    metrics.claims = () => ({
      held: this.#entries.size - this.#waiting,
      waiting: this.#waiting,
      longestQueue: this.#longestQueue(),
    });
  }

  knows(ref: ClaimRef): boolean {
    return this.#entries.find(nameOf(ref)) !== undefined;
  }

  waitersOf(key: string): number {
    return this.#queues.size === 0 ? 0 : (this.#queues.get(key) ?? 0);
  }

  held(ref: ClaimRef, client: Client, nowMs: number, expiresInMs: number): void {
    const name = nameOf(ref);
    const entry = this.#entries.find(name);
    if (entry === undefined) {
      this.#add(new Entry(name, ref.key, client, true, nowMs, nowMs + expiresInMs));
      this.#metrics.grants++;
      this.#metrics.addWait(0);
      return;
    }
    if (!entry.held) this.#grant(entry, nowMs);
    entry.expiresAtMs = nowMs + expiresInMs;
  }

  waiting(ref: ClaimRef, client: Client, nowMs: number, expiresInMs: number): void {
    const name = nameOf(ref);
    const entry = this.#entries.find(name);
    if (entry === undefined) this.#add(new Entry(name, ref.key, client, false, nowMs, nowMs + expiresInMs));
    else entry.expiresAtMs = nowMs + expiresInMs;
  }

  /** A waiting claim was granted, as the store has pushed. */
  granted(ref: ClaimRef, nowMs: number): void {
    const entry = this.#entries.find(nameOf(ref));
    if (entry !== undefined && !entry.held) this.#grant(entry, nowMs);
  }

  released(ref: ClaimRef, nowMs: number): void {
    const entry = this.#entries.find(nameOf(ref));
    if (entry === undefined) return;
    this.#remove(entry);
    if (entry.held) this.#metrics.addHold(nowMs - entry.sinceMs);
  }

  /** The store does not know it any more, and it was not given back here. */
  gone(ref: ClaimRef): void {
    const entry = this.#entries.find(nameOf(ref));
    if (entry !== undefined) this.#expire(entry);
  }

  /** Forgets what has expired, some of it at a time. What it misses while the index changes is there the next time. */
  sweep(nowMs: number): void {
    this.#sweep ??= this.#entries.values();
    for (let count = 0; count < SWEPT_AT_ONCE; count++) {
      const { value, done } = this.#sweep.next();
      if (done === true) {
        this.#sweep = undefined;
        return;
      }
      // One that was removed since it was come upon has been counted.
      if (value.expiresAtMs <= nowMs && this.#entries.find(value.id) === value) this.#expire(value);
    }
  }

  #longestQueue(): number {
    let longest = 0;
    for (const length of this.#queues.values()) longest = Math.max(longest, length);
    return longest;
  }

  #add(entry: Entry): void {
    this.#entries.add(entry);
    entry.client.claims++;
    if (entry.held) return;
    this.#waiting++;
    this.#queues.set(entry.key, this.waitersOf(entry.key) + 1);
  }

  #grant(entry: Entry, nowMs: number): void {
    this.#metrics.grants++;
    this.#metrics.addWait(nowMs - entry.sinceMs);
    this.#leaveQueue(entry);
    entry.held = true;
    entry.sinceMs = nowMs;
  }

  #remove(entry: Entry): void {
    this.#entries.remove(entry);
    entry.client.claims--;
    if (!entry.held) this.#leaveQueue(entry);
  }

  #expire(entry: Entry): void {
    this.#remove(entry);
    this.#metrics.expiries++;
  }

  #leaveQueue({ key }: Entry): void {
    this.#waiting--;
    const left = this.waitersOf(key) - 1;
    if (left > 0) this.#queues.set(key, left);
    else this.#queues.delete(key);
  }
}

/** Neither part can contain a line break. */
function nameOf(ref: ClaimRef): string {
  return `${ref.id}\n${ref.key}`;
}
