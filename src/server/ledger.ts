/**
 * What this server knows of the claims that go through it, for its metrics and its limits. The store decides everything
 * else: a claim that is missing here, or should not be here, changes no answer.
 */

import { IdIndex } from "../record/index.ts";
import type { ClaimRef, GrantRef, HeldAnswer } from "../store/index.ts";
import type { Asker, Audit } from "./audit.ts";
import type { Metrics } from "./metrics.ts";
import type { Owner } from "./ownership.ts";
import type { Source } from "./source.ts";

/** Who asks: for the limit on a client's claims, and as their owner. */
export interface Client extends Owner {
  /** For people: who it is. */
  readonly name: string;
  /** The name of its token. Undefined on a server without tokens. */
  readonly principal: string | undefined;
  /** How many claims it has. */
  claims: number;
  /** How many calls and sessions it has under way, and how many of the calls wait or watch. */
  calls: number;
  waitingCalls: number;
  watches: number;
}

export function newClient(name: string, prefix: string, principal?: string): Client {
  return { name, prefix, principal, claims: 0, calls: 0, waitingCalls: 0, watches: 0 };
}

/** What is known of a claim that was released. */
export interface KnownClaim extends Asker {
  readonly held: boolean;
  readonly fence: bigint | undefined;
}

class Entry implements KnownClaim {
  /** Its id and its key: a client may use one id for very many keys, and a key may have very many claims. */
  readonly id: string;
  readonly key: string;
  readonly client: Client;
  source: Source | undefined;
  held: boolean;
  /** Of its latest grant, if that is known here. */
  fence: bigint | undefined;
  sinceMs: number;
  expiresAtMs: number;
  idHash = 0;
  idNext: this | undefined = undefined;

  constructor(
    name: string,
    key: string,
    { client, source }: Asker,
    held: boolean,
    sinceMs: number,
    expiresAtMs: number,
  ) {
    this.id = name;
    this.key = key;
    this.client = client;
    this.source = source;
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
  readonly #audit: Audit;
  #waiting = 0;
  #sweep: Generator<Entry> | undefined;

  constructor(metrics: Metrics, audit: Audit) {
    this.#metrics = metrics;
    this.#audit = audit;
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

  held(ref: ClaimRef, asker: Asker, nowMs: number, { expiresInMs, fence }: HeldAnswer): void {
    const name = nameOf(ref);
    let entry = this.#entries.find(name);
    if (entry === undefined) {
      entry = new Entry(name, ref.key, asker, true, nowMs, nowMs + expiresInMs);
      this.#add(entry);
      this.#metrics.grants++;
      this.#metrics.addWait(0);
    } else if (!entry.held) this.#grant(entry, nowMs);
    entry.expiresAtMs = nowMs + expiresInMs;
    if (entry.fence === fence) return;
    entry.source = asker.source ?? entry.source;
    this.#granted(entry, ref, fence);
  }

  waiting(ref: ClaimRef, asker: Asker, nowMs: number, expiresInMs: number): void {
    const name = nameOf(ref);
    const entry = this.#entries.find(name);
    if (entry === undefined) this.#add(new Entry(name, ref.key, asker, false, nowMs, nowMs + expiresInMs));
    else entry.expiresAtMs = nowMs + expiresInMs;
  }

  /** A waiting claim was granted, as the store has pushed. */
  granted(ref: GrantRef, nowMs: number): void {
    const entry = this.#entries.find(nameOf(ref));
    if (entry === undefined || entry.held) return;
    this.#grant(entry, nowMs);
    // Without a fence the heartbeat that follows tells it.
    if (ref.fence !== undefined) this.#granted(entry, ref, ref.fence);
  }

  /** Returns what was known of the claim. */
  released(ref: ClaimRef, nowMs: number): KnownClaim | undefined {
    const entry = this.#entries.find(nameOf(ref));
    if (entry === undefined) return undefined;
    this.#remove(entry);
    if (entry.held) this.#metrics.addHold(nowMs - entry.sinceMs);
    return entry;
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

  #granted(entry: Entry, ref: ClaimRef, fence: bigint): void {
    entry.fence = fence;
    this.#audit.claim("granted", ref, entry, fence);
  }

  #remove(entry: Entry): void {
    this.#entries.remove(entry);
    entry.client.claims--;
    if (!entry.held) this.#leaveQueue(entry);
  }

  #expire(entry: Entry): void {
    this.#remove(entry);
    this.#metrics.expiries++;
    const { id, key, fence } = entry;
    if (entry.held) this.#audit.claim("lost", { key, id: id.slice(0, -key.length - 1) }, entry, fence);
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
