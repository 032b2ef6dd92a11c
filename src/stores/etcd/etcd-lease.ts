/**
 * One lease of this process: what its claims hang on.
 *
 * To others it is a key that hangs on the lease, so that etcd removes the key when the lease ends. What this process may
 * promise on it is another matter, and is counted from when a sign of life was *sent*:
 *
 * - etcd's leader renews a lease without asking the other members. One that was cut off, or paused, and has not noticed that
 *   there is another leader by now, says yes as well. So a sign of life counts only once a majority has answered a later request
 *   in the same term: then it was the leader that renewed, and a later leader begins by giving every lease its full time.
 * - A swap that was given up may still be made, much later. Its claims would then hang on a lease that lives on, and nobody
 *   would know of them. So swaps compare the revision of the lease's key, and after one that was given up the key is written
 *   again before anything else is done: what was given up is then either made, or never will be.
 */
import { randomBytes } from "node:crypto";
import { type HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import type { EtcdKeepAlive } from "./client.ts";
import type { Connection } from "./connection.ts";
import { isOfClass } from "./errors.ts";
import { exists, getKey, isAbsent, nested, put } from "./requests.ts";

/** A sign of life that etcd has answered, and no majority has confirmed yet. */
interface Sign {
  readonly sentMs: number;
  readonly answeredMs: number;
  readonly term: string;
}

/** How many signs of life are sent in the time that a lease lives. */
const SIGNS = 6;
/** How many wait to be proven. Where nothing else is asked of etcd, only the latest are of use. */
const MOST_SIGNS = 8;

export interface EtcdLeaseOptions {
  readonly connection: Connection;
  readonly seconds: number;
  readonly clockDrift: number;
  /** The shortest life that the server grants is longer. */
  onTooShort(grantedSeconds: number): Error;
  onEnd(lease: EtcdLease): void;
}

export class EtcdLease {
  readonly name: string;
  readonly key: Buffer;
  readonly seconds: number;
  readonly #id: string;
  readonly #options: EtcdLeaseOptions;
  readonly #connection: Connection;
  #starting: Promise<void> | undefined;
  #isReady = false;
  #hasEnded = false;
  #epoch = "0";
  /** The latest epoch that a request had which was given up. */
  #doubted: bigint | undefined;
  #settling: Promise<void> | undefined;
  #signs: Sign[] = [];
  #provenMs = Number.NEGATIVE_INFINITY;
  #sentMs = Number.NEGATIVE_INFINITY;
  #usedMs: number;
  /** When the grant that made it was sent, at the earliest. Undefined until it was first asked for. */
  #askedMs: number | undefined;

  constructor(options: EtcdLeaseOptions) {
    const id = randomBytes(8).readBigUInt64BE() >> 1n;
    this.#id = String(id);
    this.seconds = options.seconds;
    this.name = `${id.toString(16)}.${options.seconds}`;
    this.key = options.connection.keys.lease(this.name);
    this.#options = options;
    this.#connection = options.connection;
    this.#usedMs = options.connection.clock.monotonicMs();
  }

  get isReady(): boolean {
    return this.#isReady;
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** The revision of its key, which swaps compare. */
  get epoch(): string {
    return this.#epoch;
  }

  /** The next sign of life is due then. */
  get dueMs(): number {
    return this.#sentMs + (1_000 * this.seconds) / SIGNS;
  }

  get usedMs(): number {
    return this.#usedMs;
  }

  use(): void {
    this.#usedMs = this.#connection.clock.monotonicMs();
  }

  /** Until when it lives for certain. */
  get provenUntilMs(): number {
    return this.#provenMs + 1_000 * this.seconds * (1 - this.#options.clockDrift);
  }

  /** Whether a sign of life that was sent after this is proven. */
  isProvenSince(sinceMs: number): boolean {
    return this.#provenMs >= sinceMs;
  }

  /** Whether less than half of its life is proven. */
  get isStale(): boolean {
    return this.#isOld(this.#provenMs);
  }

  /** Whether a sign of life is needed at once, because also the latest one that was answered is old. */
  get isDue(): boolean {
    return this.#isOld(
      this.#signs.reduce((latestMs, { sentMs }) => Math.max(latestMs, sentMs), this.#provenMs),
    );
  }

  #isOld(sentMs: number): boolean {
    return this.#connection.clock.monotonicMs() - sentMs > 500 * this.seconds;
  }

  /** Resolves when it can be used. What failed is tried again by the next call. */
  start(): Promise<void> {
    this.#starting ??= this.#start().catch((error: unknown) => {
      this.#starting = undefined;
      throw error;
    });
    return this.#starting;
  }

  async #start(): Promise<void> {
    const seconds = await this.#grant();
    if (seconds > this.seconds) {
      await this.#revoke();
      throw this.#options.onTooShort(seconds);
    }
    this.#epoch = await this.#writeKey().catch(async (error: HoldfastError) => {
      // Whoever may not write is not to leave a lease for its whole life, each time that it tries.
      if (error.code === "UNAUTHORIZED") await this.#revoke();
      throw error;
    });
    this.#connection.hasWritten();
    // Granting takes a majority. One that is found again has lived since it was first asked for.
    this.#provenMs = this.#askedMs ?? Number.NEGATIVE_INFINITY;
    this.#sentMs = this.#provenMs;
    this.#isReady = true;
  }

  /** For how long it lives. Its id is our own choice, so that a grant whose reply was lost is found again. */
  async #grant(): Promise<number> {
    const { leaseClient } = this.#connection.client;
    const sentMs = this.#connection.clock.monotonicMs();
    const isRepeated = this.#askedMs !== undefined;
    this.#askedMs ??= sentMs;
    try {
      const granted = await this.#connection.call((options) =>
        leaseClient.leaseGrant({ TTL: this.seconds, ID: this.#id }, options),
      );
      this.#askedMs = sentMs;
      return Number(granted.TTL);
    } catch (error) {
      const { cause } = error as { cause?: unknown };
      if (!isOfClass(cause, "GRPCFailedPreconditionError")) throw error;
      const known = await this.#connection.call((options) =>
        leaseClient.leaseTimeToLive({ ID: this.#id }, options),
      );
      const granted = Number(known.grantedTTL);
      // Somebody's credentials may be wrong instead, for instance: then there is no such lease, and never was one.
      if (!(granted > 0) && !isRepeated) {
        this.#askedMs = undefined;
        throw error;
      }
      if (Number(known.TTL) > 0) return granted;
      // The reply was lost so long ago that its time is up, whether or not etcd has removed it yet. Another one takes its place.
      this.end();
      throw ended();
    }
  }

  async #revoke(): Promise<void> {
    const { leaseClient } = this.#connection.client;
    const revoked = this.#connection.call((options) => leaseClient.leaseRevoke({ ID: this.#id }, options));
    // It ends by itself.
    await revoked.catch(() => {});
  }

  async #writeKey(): Promise<string> {
    const response = await this.#guarded(() =>
      this.#connection.txn({
        compare: [isAbsent(this.key)],
        success: [put(this.key, "", this.#id)],
        failure: [getKey(this.key)],
      }),
    );
    if (response.succeeded) return response.header.revision;
    return response.responses[0]?.response_range.kvs[0]?.mod_revision ?? this.#epoch;
  }

  /** Sends a sign of life, and resolves when it is answered. */
  async showLife(): Promise<void> {
    const { clock } = this.#connection;
    const sentMs = clock.monotonicMs();
    this.#sentMs = sentMs;
    const { header, TTL } = await this.#keepAlive();
    if (TTL === "0") {
      this.end();
      throw ended();
    }
    if (this.#signs.length === MOST_SIGNS) this.#signs.shift();
    this.#signs.push({ sentMs, answeredMs: clock.monotonicMs(), term: header.raft_term });
  }

  async #keepAlive(): Promise<EtcdKeepAlive> {
    const { client } = this.#connection;
    const withinMs = (1_000 * this.seconds) / 3;
    return this.#connection.call(async (options) => {
      const stream = await client.leaseClient.leaseKeepAlive(options);
      try {
        return await new Promise<EtcdKeepAlive>((resolve, reject) => {
          stream.on("data", resolve);
          stream.on("error", reject);
          stream.on("end", () =>
            reject(new StoreUnavailableError("etcd ended a keep-alive without an answer.")),
          );
          stream.write({ ID: this.#id });
        });
      } finally {
        stream.end();
      }
    }, withinMs);
  }

  /** A majority has answered a request that was sent then, in this term. */
  hear(term: string, sentMs: number): void {
    if (this.#signs.length === 0) return;
    const later: Sign[] = [];
    for (const sign of this.#signs) {
      if (sign.answeredMs > sentMs) later.push(sign);
      else if (sign.term === term) this.#provenMs = Math.max(this.#provenMs, sign.sentMs);
    }
    this.#signs = later;
  }

  /** A swap that compared this epoch was given up, and may yet be made. */
  doubt(epoch: string): void {
    const asked = BigInt(epoch);
    if (this.#doubted === undefined || asked > this.#doubted) this.#doubted = asked;
  }

  get isDoubtful(): boolean {
    return this.#doubted !== undefined;
  }

  /** Makes sure that no swap that was given up is made after this. */
  settle(): Promise<void> {
    this.#settling ??= this.#settle().finally(() => {
      this.#settling = undefined;
    });
    return this.#settling;
  }

  async #settle(): Promise<void> {
    if (!this.#isReady) return;
    // A swap that was refused tells of the new epoch before the answer to this does. (1) Another one goes by that, and is given up. (2) The
    // answer comes. What is on its way still compares as it should, so the key is written once more. What was given up before a write is
    // settled by it, so this ends with what was under way.
    do await this.#writeEpoch();
    while (this.#doubted !== undefined && !this.#hasEnded);
  }

  /**
   * The write is a transaction within the transaction, which etcd takes also where its space is used up, as it does changes. (1) The answer
   * to a change is lost there. (2) Every later request waits for this write, heartbeats as well. (3) It is refused, and all leases of the process are lost.
   */
  async #writeEpoch(): Promise<void> {
    const doubted = this.#doubted;
    const write = nested({ compare: [], success: [put(this.key, "", this.#id)], failure: [] });
    const response = await this.#guarded(() =>
      this.#connection.txn({
        compare: [exists(this.key)],
        success: [write],
        failure: [getKey(this.key)],
      }),
    );
    if (!response.succeeded) {
      this.end();
      return;
    }
    const { revision } = response.header;
    if (doubted !== undefined && BigInt(revision) <= doubted) {
      this.leaveBehind();
      return;
    }
    this.learnEpoch(revision);
    if (this.#doubted !== undefined && this.#doubted < BigInt(revision)) this.#doubted = undefined;
  }

  /** The key has this revision now: one that was written later than was thought. */
  learnEpoch(revision: string): void {
    if (BigInt(revision) > BigInt(this.#epoch)) this.#epoch = revision;
  }

  /** The key has this revision now, by the answer to a request that compared the other one. */
  learnRefusal(revision: string, compared: string): void {
    if (BigInt(revision) < BigInt(compared)) this.leaveBehind();
    else this.learnEpoch(revision);
  }

  /**
   * Revisions have gone back: the cluster was restored from a backup, which has this lease as well. What is compared would not come true
   * before there are as many revisions again, so another lease takes its place, and this one ends for want of signs of life.
   */
  leaveBehind(): void {
    this.#doubted = undefined;
    this.end();
  }

  end(): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#options.onEnd(this);
  }

  /** Makes a request that hangs something on the lease, which fails where it has ended. */
  async #guarded<R>(send: () => Promise<R>): Promise<R> {
    try {
      return await send();
    } catch (error) {
      if (isOfClass((error as { cause?: unknown }).cause, "EtcdLeaseInvalidError")) this.end();
      throw error;
    }
  }
}

function ended(): StoreUnavailableError {
  return new StoreUnavailableError("The etcd lease has ended, and its claims with it. Try again.");
}
