/**
 * What this server knows of the claims that go through it, for its metrics and its limits. The store decides everything
 * else: a claim that is missing here, or should not be here, changes no answer.
 */
import type { ClaimRef } from "../core/index.ts";
import type { Metrics } from "./metrics.ts";

/** Who asks, for the limit on a client's claims. */
export interface Client {
  /** For people: who it is. */
  readonly name: string;
  /** How many claims it has. */
  claims: number;
}

interface Entry {
  readonly client: Client;
  readonly key: string;
  held: boolean;
  sinceMs: number;
  expiresAtMs: number;
}

/** How many entries are looked at in each turn of the sweep. */
const SWEPT_AT_ONCE = 20_000;

export class Ledger {
  readonly #entries = new Map<string, Entry>();
  /** How many claims wait for a key. */
  readonly #queues = new Map<string, number>();
  readonly #metrics: Metrics;
  #waiting = 0;
  #sweep: IterableIterator<[string, Entry]> | undefined;

  constructor(metrics: Metrics) {
    this.#metrics = metrics;
    metrics.claims = () => ({
      held: this.#entries.size - this.#waiting,
      waiting: this.#waiting,
      longestQueue: this.#longestQueue(),
    });
  }

  knows(ref: ClaimRef): boolean {
    return this.#entries.has(nameOf(ref));
  }

  waitersOf(key: string): number {
    return this.#queues.get(key) ?? 0;
  }

  held(ref: ClaimRef, client: Client, nowMs: number, expiresInMs: number): void {
    const name = nameOf(ref);
    const entry = this.#entries.get(name);
    if (entry === undefined) {
      this.#add(name, ref.key, client, true, nowMs, nowMs + expiresInMs);
      this.#metrics.grants++;
      this.#metrics.addWait(0);
      return;
    }
    if (!entry.held) this.#grant(entry, nowMs);
    entry.expiresAtMs = nowMs + expiresInMs;
  }

  waiting(ref: ClaimRef, client: Client, nowMs: number, expiresInMs: number): void {
    const name = nameOf(ref);
    const entry = this.#entries.get(name);
    if (entry === undefined) this.#add(name, ref.key, client, false, nowMs, nowMs + expiresInMs);
    else entry.expiresAtMs = nowMs + expiresInMs;
  }

  /** A waiting claim was granted, as the store has pushed. */
  granted(ref: ClaimRef, nowMs: number): void {
    const entry = this.#entries.get(nameOf(ref));
    if (entry !== undefined && !entry.held) this.#grant(entry, nowMs);
  }

  released(ref: ClaimRef, nowMs: number): void {
    const entry = this.#remove(nameOf(ref));
    if (entry?.held === true) this.#metrics.addHold(nowMs - entry.sinceMs);
  }

  /** The store does not know it any more, and it was not given back here. */
  gone(ref: ClaimRef): void {
    if (this.#remove(nameOf(ref)) !== undefined) this.#metrics.expiries++;
  }

  /** Forgets what has expired, some of it at a time. */
  sweep(nowMs: number): void {
    this.#sweep ??= this.#entries.entries();
    for (let count = 0; count < SWEPT_AT_ONCE; count++) {
      const { value, done } = this.#sweep.next();
      if (done === true) {
        this.#sweep = undefined;
        return;
      }
      const [name, entry] = value as [string, Entry];
      if (entry.expiresAtMs > nowMs) continue;
      this.#remove(name);
      this.#metrics.expiries++;
    }
  }

  #longestQueue(): number {
    let longest = 0;
    for (const length of this.#queues.values()) longest = Math.max(longest, length);
    return longest;
  }

  #add(name: string, key: string, client: Client, held: boolean, sinceMs: number, expiresAtMs: number): void {
    this.#entries.set(name, { client, key, held, sinceMs, expiresAtMs });
    client.claims++;
    if (held) return;
    this.#waiting++;
    this.#queues.set(key, this.waitersOf(key) + 1);
  }

  #grant(entry: Entry, nowMs: number): void {
    this.#metrics.grants++;
    this.#metrics.addWait(nowMs - entry.sinceMs);
    this.#leaveQueue(entry);
    entry.held = true;
    entry.sinceMs = nowMs;
  }

  #remove(name: string): Entry | undefined {
    const entry = this.#entries.get(name);
    if (entry === undefined) return undefined;
    this.#entries.delete(name);
    entry.client.claims--;
    if (!entry.held) this.#leaveQueue(entry);
    return entry;
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
