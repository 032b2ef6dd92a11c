/**
 * Removes records that nobody has used for a while: idle ones, and those whose claims all hang on leases that have ended.
 *
 * There is no clock to say for how long. Instead, sweeps are at least `keepIdleMs` apart, which a key on a lease sees to, and
 * each writes a key. A record that is older than the last write of that key, by its revision, has been left alone since then.
 *
 * Whoever makes a record compares that the key was not written since the revision that its fence was made from: so nobody
 * makes one anew with a lower fence than the one that was removed. docs/decisions/0013-etcd-leases.md has the race. The key is written
 * once for each sweep, however many it removes: whoever makes a record is refused for that, and decides again.
 */

import type { Timer } from "../../platform/index.ts";
import { decodeRecord } from "../../record/index.ts";
import type { EtcdKeyValue } from "./client.ts";
import type { Connection } from "./connection.ts";
import { after, endOf } from "./keys.ts";
import { readRecords } from "./record-reads.ts";
import { getKey, hasRevision, isAbsent, nested, put, remove } from "./requests.ts";
import { INNER_OPERATIONS, LOOKED_AT } from "./swap-request.ts";

export interface SweepingOptions {
  readonly keepIdleMs: number;
  /** Where chance comes from: 0 up to 1. */
  readonly random: () => number;
  /** How many records in one request. */
  readonly atOnce: number;
}

/** Keys in one request of the look for old ones. */
const LOOKED_AT_ONCE = 1_000;
/** A record with more etcd leases than this is left to whoever uses its key. With one comparison more, a removal may have no more inside. */
const MOST_LEASES = INNER_OPERATIONS + LOOKED_AT - 1;
/** How many sweeps follow a record that was left: one marks it, one removes it, and one may be somebody else's turn. */
const SWEEPS = 3;
/** By how much a pause may last longer than it should, since etcd looks for leases that are over only now and then. */
const SLACK_MS = 2_000;

export class Sweeping {
  readonly #connection: Connection;
  readonly #options: SweepingOptions;
  #timer: Timer | undefined;
  #early: Timer | undefined;
  #sweepsLeft = 0;
  #closed = false;

  constructor(connection: Connection, options: SweepingOptions) {
    this.#connection = connection;
    this.#options = options;
  }

  /** A record was made, or left without claims. */
  expect(): void {
    if (this.#closed) return;
    this.#sweepsLeft = SWEEPS;
    this.#schedule();
    // Processes that live for less than a pause would never get to it: of many, some sweep before they end.
    this.#early ??= this.#connection.clock.setTimer(this.#options.random() * this.#pauseMs, () => {
      this.sweep().catch(() => {});
    });
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#early?.cancel();
  }

  get #pauseMs(): number {
    return this.#options.keepIdleMs + SLACK_MS;
  }

  #schedule(): void {
    if (this.#timer !== undefined || this.#closed || this.#sweepsLeft === 0) return;
    this.#timer = this.#connection.clock.setTimer(this.#pauseMs, () => {
      this.#timer = undefined;
      this.#sweepsLeft--;
      const again = () => this.#schedule();
      // An outage is told to whoever asks for something.
      this.sweep().then(again, again);
    });
  }

  /** Removes what has been left alone for long enough, if it is time for that, and tells how many records that were. */
  async sweep(): Promise<number> {
    const before = await this.#mark();
    if (before === undefined) return 0;
    const { keys } = this.#connection;
    const end = endOf(keys.record(""));
    let removed = 0;
    for (let from = keys.record(""); !this.#closed; ) {
      const page = { key: from, range_end: end, limit: LOOKED_AT_ONCE, keys_only: true };
      const { kvs } = await this.#connection.range(page);
      const old = kvs.filter(({ mod_revision: revision }) => BigInt(revision) < before);
      for (let at = 0; at < old.length && !this.#closed; at += this.#options.atOnce) {
        removed += await this.#removeSome(old.slice(at, at + this.#options.atOnce));
      }
      const last = kvs.at(-1);
      if (last === undefined || kvs.length < LOOKED_AT_ONCE) break;
      from = after(last.key);
    }
    return removed;
  }

  /** The revision of the sweep before this one; undefined where it was not long ago, or there was none. */
  async #mark(): Promise<bigint | undefined> {
    const { keys, client } = this.#connection;
    const looked = await this.#connection.txn({ success: [getKey(keys.sweepPause), getKey(keys.swept)] });
    const [pause, swept] = looked.responses.map(({ response_range: { kvs } }) => kvs[0]);
    if (pause !== undefined || this.#closed) return undefined;
    const seconds = Math.ceil(this.#options.keepIdleMs / 1_000);
    const lease = await this.#connection.call((options) =>
      client.leaseClient.leaseGrant({ TTL: seconds }, options),
    );
    const { succeeded } = await this.#connection.txn({
      compare: [isAbsent(keys.sweepPause), hasRevision(keys.swept, swept?.mod_revision)],
      success: [put(keys.sweepPause, "", lease.ID), put(keys.swept, "")],
      failure: [],
    });
    return succeeded && swept !== undefined ? BigInt(swept.mod_revision) : undefined;
  }

  async #removeSome(old: readonly EtcdKeyValue[]): Promise<number> {
    const { keys } = this.#connection;
    const found = await readRecords(
      this.#connection,
      old.map(({ key }) => key),
    );
    const removals = found.flatMap((kv, index) => {
      const seen = old[index];
      const etcdLeases =
        kv?.mod_revision === seen?.mod_revision && kv !== undefined ? this.#leasesOf(kv) : undefined;
      if (kv === undefined || etcdLeases === undefined) return [];
      const compare = [hasRevision(kv.key, kv.mod_revision)];
      for (const name of etcdLeases) compare.push(isAbsent(keys.lease(name)));
      return [nested({ compare, success: [remove(kv.key)], failure: [] })];
    });
    if (removals.length === 0) return 0;
    const { responses: done } = await this.#connection.txn({ success: removals });
    return done.filter(({ response_txn: removal }) => removal.succeeded).length;
  }

  /** The leases that must have ended so that a record is of no use; undefined where it may be of use anyway. */
  #leasesOf({ key, value }: EtcdKeyValue): readonly string[] | undefined {
    try {
      const record = decodeRecord(value.toString("utf8"), this.#connection.keys.keyOf(key));
      const etcdLeases = new Set([...record.held, ...record.queue].map(({ etcdLease }) => etcdLease));
      return etcdLeases.has("") || etcdLeases.size > MOST_LEASES ? undefined : [...etcdLeases];
    } catch {
      // What cannot be read is left as it is, for whoever can.
      return undefined;
    }
  }
}
