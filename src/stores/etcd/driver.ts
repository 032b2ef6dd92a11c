/** etcd, as `casStore` sees it. */
import type { Clock } from "../../platform/index.ts";
import { HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import type {
  CasDriver,
  Change,
  ChangeResult,
  DriverLimits,
  ListedRecord,
  ListReply,
  OnWake,
  ReadReply,
  SwapBatch,
  SwapReply,
} from "../cas/index.ts";
import { ClaimLifetimes } from "./claim-lifetimes.ts";
import type { EtcdClient, EtcdKeyValue, EtcdTxnRequest, EtcdTxnResponse } from "./client.ts";
import { Connection } from "./connection.ts";
import { isOfClass } from "./errors.ts";
import type { EtcdLease } from "./etcd-lease.ts";
import { EtcdLeases } from "./etcd-leases.ts";
import { after, endOf, Keys } from "./keys.ts";
import { RECORD_BYTES, readRecords } from "./record-reads.ts";
import { getKey } from "./requests.ts";
import { PATIENCE } from "./silence.ts";
import {
  type FurtherLook,
  INNER_OPERATIONS,
  jointRequest,
  LOOKED_AT,
  type SwapContext,
  type SwapOutcome,
  SwapRequest,
  storedRecord,
  untimely,
  versionOf,
} from "./swap-request.ts";
import { Sweeping } from "./sweeping.ts";
import { Watching } from "./wake.ts";
import { WakeLease } from "./wake-lease.ts";

export interface EtcdDriverOptions {
  readonly client: EtcdClient;
  readonly prefix: string;
  readonly maxTxnOps: number;
  /** How long `casStore` waits for an answer. The driver gives up a little earlier, so that it knows what it has to doubt. */
  readonly requestTimeoutMs: number;
  readonly keepIdleMs: number;
  readonly clockDrift: number;
  readonly clock: Clock;
  readonly random: () => number;
}

/** Keys in one request of a listing. */
const LISTED_AT_ONCE = 1_000;
/** For how long changes are not made jointly, after some were refused because one of them could not be made. */
const APART_MS = 1_000;
/** How often a sign of life is repeated because the leader has changed since. */
const PROOFS = 3;

export class EtcdDriver implements CasDriver {
  readonly name = "etcd";
  readonly durability = "quorum";
  readonly checksTime = false;
  readonly limits: DriverLimits;
  readonly lifetimes: ClaimLifetimes;
  readonly #leases: EtcdLeases;
  readonly #connection: Connection;
  readonly #keys: Keys;
  readonly #clock: Clock;
  readonly #watching: Watching;
  readonly #wakeLease: WakeLease;
  readonly #sweeping: Sweeping;
  readonly #offsetMs: number;
  readonly #maxTxnOps: number;
  readonly #patienceMs: number;
  #watchesLeases: Promise<unknown> | undefined;
  #apartUntilMs = Number.NEGATIVE_INFINITY;

  constructor(options: EtcdDriverOptions) {
    const { client, prefix, maxTxnOps, requestTimeoutMs, keepIdleMs, clockDrift, clock, random } = options;
    const changes = maxTxnOps - INNER_OPERATIONS - LOOKED_AT;
    // etcd takes requests of up to 1.5 MiB. A batch may have one record more than it should, and is counted in characters, of up to three bytes.
    this.limits = { changes, batchBytes: Math.floor(RECORD_BYTES / 3), recordBytes: RECORD_BYTES };
    this.#clock = clock;
    this.#maxTxnOps = maxTxnOps;
    this.#patienceMs = PATIENCE * requestTimeoutMs;
    this.#offsetMs = clock.wallMs() - clock.monotonicMs();
    this.#keys = new Keys(prefix);
    this.#connection = new Connection(client, this.#keys, clock, this.#patienceMs);
    this.#leases = new EtcdLeases(this.#connection, clockDrift, maxTxnOps);
    this.lifetimes = new ClaimLifetimes(this.#leases, clock);
    this.#watching = new Watching(this.#connection, () => this.#leases.missed());
    this.#wakeLease = new WakeLease(this.#connection);
    this.#sweeping = new Sweeping(this.#connection, { keepIdleMs, random, atOnce: changes });
  }

  async read(keys: readonly string[]): Promise<ReadReply> {
    await this.#connection.greet();
    // At least one look, or nobody would have asked a majority.
    if (keys.length === 0) await this.#connection.txn({ success: [getKey(this.#keys.swept)] });
    const { history } = this.#connection;
    const found = await readRecords(
      this.#connection,
      keys.map((key) => this.#keys.record(key)),
    );
    return { records: found.map((kv) => storedRecord(history, kv)), nowMs: this.#nowMs() };
  }

  async swap(batch: SwapBatch): Promise<SwapReply> {
    const { changes, stamp = this.#leases.stamp() } = batch;
    const decidedMs = this.#clock.monotonicMs();
    // Before anything is awaited: one that ends meanwhile is not among the living any more, and must be found to have ended.
    const leasesOf = (asked: readonly Change[]) =>
      this.#leases.own(asked.flatMap(({ leases }) => leases?.own ?? []));
    const leases = leasesOf(changes);
    const fresh = leasesOf(changes.filter(({ leases }) => leases?.fresh));
    const moved = leasesOf(changes.filter(({ leases }) => leases?.moved));
    await this.#connection.greet();
    await this.#leases.settleDoubts();
    await this.#prepare(leases, fresh);
    await this.#proveMoved(moved, decidedMs);
    if (changes.some(({ text }) => text !== undefined)) await this.#connection.checkWriting();
    if (leases.some((lease) => lease.hasEnded)) return this.#reply(untimely(changes));
    const wakeLease = changes.some(({ wakes }) => wakes.length > 0) ? await this.#wakeLease.id() : undefined;
    const revision = this.#leases.revisionOf(stamp);
    // (1) Changes go jointly, and the answer shows that the cluster was restored. (2) They go apart with what was known before, and one of them
    // finds the revision that it expects, written by somebody else. So each request goes by the history of its own moment.
    const context = () => ({
      keys: this.#keys,
      leases,
      revision,
      history: this.#connection.history,
      wakeLease,
    });
    const joint = await this.#swapJointly(changes, context(), decidedMs);
    const results = joint ?? (await this.#swapApart(changes, context(), decidedMs));
    if (
      changes.some(
        ({ idle, expected }, index) => (idle || expected === undefined) && isSwapped(results[index]),
      )
    )
      this.#sweeping.expect();
    await this.#prove(leases, (lease) => !fresh.includes(lease) || lease.isProvenSince(decidedMs));
    return this.#reply(results);
  }

  /** Starts leases, and shows signs of life where that is asked for or urgent. */
  async #prepare(leases: readonly EtcdLease[], fresh: readonly EtcdLease[]): Promise<void> {
    for (const lease of leases) lease.use();
    const started = leases.filter((lease) => !lease.isReady);
    await this.#leases.startAll(started);
    const due = leases.filter(
      (lease) => !started.includes(lease) && (fresh.includes(lease) || lease.isStale),
    );
    await Promise.all(due.map((lease) => showLife(lease)));
  }

  /**
   * A claim is hung on another lease only where that is certain to live. (1) A caller is promised a second on one lease. (2) The leader
   * changes, and the former one answers signs of life for another lease, which renews nothing. (3) The claim is hung on that, and the
   * answer is lost, or late for want of a proof. (4) The caller goes by its promise, and the lease ends.
   */
  async #proveMoved(leases: readonly EtcdLease[], decidedMs: number): Promise<void> {
    if (leases.length === 0) return;
    const isProven = (lease: EtcdLease) => lease.isProvenSince(decidedMs);
    // Mostly this is enough, as a sign of life was just answered.
    await this.#connection.range({ key: this.#keys.swept, keys_only: true });
    await this.#prove(leases, isProven);
    if (leases.some((lease) => !lease.hasEnded && !isProven(lease))) throw unprovenLeases();
  }

  /** Undefined where they have to go apart: nothing was done. */
  async #swapJointly(
    changes: readonly Change[],
    context: SwapContext,
    decidedMs: number,
  ): Promise<readonly ChangeResult[] | undefined> {
    if (this.#clock.monotonicMs() < this.#apartUntilMs) return undefined;
    const request = jointRequest(changes, context, this.#maxTxnOps);
    if (request === undefined) return undefined;
    const response = await this.#send(request, context.leases, decidedMs);
    if (response?.responses[0]?.response_txn.succeeded === true) {
      const swapped: ChangeResult = {
        state: "swapped",
        version: versionOf(context.history, response.header.revision),
      };
      return changes.map(() => swapped);
    }
    this.#apartUntilMs = this.#clock.monotonicMs() + APART_MS;
    return undefined;
  }

  async #swapApart(
    changes: readonly Change[],
    context: SwapContext,
    decidedMs: number,
  ): Promise<readonly ChangeResult[]> {
    const swap = new SwapRequest(changes, context);
    const response = await this.#send(swap.request, context.leases, decidedMs);
    if (response === undefined) return untimely(changes);
    if (response.succeeded) this.#leases.checkAside(swap.laterLooks);
    const further = response.succeeded ? await this.#lookFurther(swap.furtherLooks, decidedMs) : {};
    const { results, ended, doubted }: SwapOutcome = swap.outcome(response, further);
    for (const name of ended) this.#leases.end(name);
    this.#leases.doubtEnds(doubted);
    return results;
  }

  /** A lease of others that lives now lived when the changes were compared. */
  async #lookFurther(names: readonly string[], decidedMs: number): Promise<FurtherLook> {
    try {
      await this.#leases.check(names, this.#leftMs(decidedMs));
    } catch (error) {
      return { failure: error };
    }
    return { ended: names.filter((name) => this.#leases.hasEnded(name)) };
  }

  /**
   * Undefined where nothing can have been done. All that a swap does has the time of one request together, from when it was decided:
   * nothing may still be made when `casStore` has given the flight up, and this driver does not doubt it yet.
   *
   * (1) Getting a lease takes long, and so does the request itself. (2) `casStore` gives the flight up, and the caller gives back what
   * it may have. (3) Nothing is found, so nobody keeps the claim in mind. (4) The request arrives, and its claim is held for as
   * long as the lease lives, by nobody.
   */
  async #send(
    request: EtcdTxnRequest,
    leases: readonly EtcdLease[],
    decidedMs: number,
  ): Promise<EtcdTxnResponse | undefined> {
    const leftMs = this.#leftMs(decidedMs);
    if (leftMs <= 0) return undefined;
    // As the request has them; what is learnt meanwhile is not what it compares.
    const epochs = leases.map(({ epoch }) => epoch);
    try {
      return await this.#connection.txn(request, leftMs);
    } catch (error) {
      if (error instanceof HoldfastError && isOfClass(error.cause, "EtcdLeaseInvalidError")) {
        // Only wake-ups hang on a lease directly.
        this.#wakeLease.forget();
        return undefined;
      }
      for (const [index, lease] of leases.entries()) lease.doubt(epochs[index] ?? lease.epoch);
      throw error;
    }
  }

  /** How much time is left for what was decided then. */
  #leftMs(decidedMs: number): number {
    return this.#patienceMs - (this.#clock.monotonicMs() - decidedMs);
  }

  /** The answer to a swap proves the signs of life before it, unless the leader has changed in between. */
  async #prove(leases: readonly EtcdLease[], isEnough: (lease: EtcdLease) => boolean): Promise<void> {
    for (let attempt = 0; attempt < PROOFS; attempt++) {
      const unproven = leases.filter((lease) => !lease.hasEnded && (lease.isStale || !isEnough(lease)));
      if (unproven.length === 0) return;
      await Promise.all(unproven.map((lease) => showLife(lease)));
      await this.#connection.range({ key: this.#keys.swept, keys_only: true });
    }
  }

  async list(prefix: string, afterKey: string | undefined, limit: number): Promise<ListReply> {
    await this.#connection.greet();
    const begin = this.#keys.record(prefix);
    const end = endOf(begin);
    const records: ListedRecord[] = [];
    let from = afterKey === undefined ? begin : after(this.#keys.record(afterKey));
    while (records.length < limit && Buffer.compare(from, end) < 0) {
      const size = Math.min(LISTED_AT_ONCE, limit - records.length);
      const page = { key: from, range_end: end, limit: size, keys_only: true };
      const { kvs } = await this.#connection.range(page);
      const found = await readRecords(
        this.#connection,
        kvs.map(({ key }) => key),
      );
      // What is gone meanwhile need not be told.
      for (const kv of found) {
        if (kv !== undefined)
          records.push({ key: this.#keys.keyOf(kv.key), text: kv.value.toString("utf8") });
      }
      const last = kvs.at(-1);
      if (kvs.length < size || last === undefined) break;
      from = after(last.key);
    }
    return { records, nowMs: this.#nowMs() };
  }

  async listen(owner: string, onWake: OnWake): Promise<() => void> {
    await this.#connection.greet();
    const prefix = this.#keys.wakes(owner);
    this.#watchesLeases ??= this.#watchLeases();
    return this.#watching.watch({
      prefix,
      what: "written",
      onEvent: (kv) => {
        const key = kv.key.toString("utf8", prefix.length);
        for (const [id, fence] of grantsIn(kv)) onWake(key, id, BigInt(fence));
      },
    });
  }

  /** Where nobody waits, the end of a lease is no news. */
  #watchLeases(): Promise<unknown> {
    const watched = this.#watching.watch({
      prefix: this.#keys.leases,
      what: "removed",
      onEvent: ({ key }) => this.#leases.end(this.#keys.leaseOf(key)),
    });
    return watched.catch(() => {
      this.#watchesLeases = undefined;
    });
  }

  async close(): Promise<void> {
    this.#watching.close();
    this.#sweeping.close();
    this.#leases.close();
  }

  #reply(results: SwapReply["results"]): SwapReply {
    return { results, nowMs: this.#nowMs() };
  }

  /** This machine's own, as far as anybody is concerned: etcd has none to tell. */
  #nowMs(): number {
    return this.#offsetMs + this.#clock.monotonicMs();
  }
}

function isSwapped(result: ChangeResult | undefined): boolean {
  return result?.state === "swapped";
}

function unprovenLeases(): StoreUnavailableError {
  return new StoreUnavailableError(
    "etcd answers keep-alives, but no majority confirms them, because the leader is changing. Nothing was changed.",
  );
}

/** A lease that has ended is no outage: what hangs on it is decided again. */
async function showLife(lease: EtcdLease): Promise<void> {
  try {
    await lease.showLife();
  } catch (error) {
    if (!lease.hasEnded) throw error;
  }
}

/** What a wake-up tells. One that cannot be read is none: losing one costs time only. */
function grantsIn({ value }: EtcdKeyValue): readonly (readonly [id: string, fence: string])[] {
  try {
    const grants: unknown = JSON.parse(value.toString("utf8"));
    return Array.isArray(grants) ? grants.filter(isGrant) : [];
  } catch {
    return [];
  }
}

function isGrant(grant: unknown): grant is readonly [id: string, fence: string] {
  return Array.isArray(grant) && typeof grant[0] === "string" && /^\d{1,20}$/.test(String(grant[1]));
}
