/** The leases of this process, one for each class of lives, and what is known of those of others. */

import type { Timer } from "../../platform/index.ts";
import { HoldfastError } from "../../store/index.ts";
import type { LeaseRegistry } from "./claim-lifetimes.ts";
import type { Connection } from "./connection.ts";
import { EtcdLease } from "./etcd-lease.ts";
import { getKey } from "./requests.ts";

/** A lease that nobody has used for so long, and for twice its life, is left to end. */
const IDLE_MS = 300_000;
/** After a sign of life that failed, how long until the next. */
const RETRY_MS = 250;
/** How many leases that have ended are kept in mind. One that is forgotten is found to have ended once more. */
const MAX_ENDED = 10_000;
/**
 * How many lives a process has leases of its own for. A request compares all that its changes rely on, and etcd takes no more than so many
 * comparisons: beyond these, lives are rounded up to a power of two, of which there are few.
 */
const MOST_LIVES = 22;
/** What stands for the life of a name that this release does not understand: the longest that there is. */
const UNKNOWN_LIFE_S = 86_400;

/**
 * How far a stamp is shifted: a change can make as many grants, and the fences of a record stay below the revision that it was
 * written at. docs/decisions/0013-etcd-leases.md shows why that is enough.
 */
const GRANTS_BITS = 20n;

export class EtcdLeases implements LeaseRegistry {
  readonly #connection: Connection;
  readonly #clockDrift: number;
  readonly #maxTxnOps: number;
  readonly #byName = new Map<string, EtcdLease>();
  readonly #bySeconds = new Map<number, EtcdLease>();
  readonly #ended = new Set<string>();
  readonly #listeners: ((etcdLease: string | undefined) => void)[] = [];
  /** The shortest life that the servers grant, as far as is known. */
  #leastSeconds = 1;
  readonly #toCheck = new Set<string>();
  #isChecking = false;
  #timer: Timer | undefined;
  #closed = false;

  constructor(connection: Connection, clockDrift: number, maxTxnOps: number) {
    this.#connection = connection;
    this.#maxTxnOps = maxTxnOps;
    this.#clockDrift = clockDrift;
    connection.onHeard((term, sentMs) => {
      for (const lease of this.#byName.values()) lease.hear(term, sentMs);
    });
    // What hangs on them may be there no more.
    connection.onSetBack(() => {
      for (const lease of [...this.#byName.values()]) if (lease.isReady) lease.leaveBehind();
    });
  }

  ready(ttlMs: number): Promise<void> | undefined {
    const seconds = classOf(ttlMs);
    if (seconds < this.#leastSeconds) return Promise.reject(this.#tooShort(ttlMs));
    const lease = this.#ofClass(seconds);
    return lease.isReady ? undefined : this.#start(lease, ttlMs);
  }

  async #start(lease: EtcdLease, ttlMs: number): Promise<void> {
    await this.#connection.greet();
    try {
      await lease.start();
    } catch (error) {
      throw error === TOO_SHORT ? this.#tooShort(ttlMs) : error;
    }
    this.#schedule();
  }

  /** Starts what is not, and leaves alone what is. */
  async startAll(leases: readonly EtcdLease[]): Promise<void> {
    await Promise.all(
      leases.filter((lease) => !lease.isReady).map((lease) => this.#start(lease, 1_000 * lease.seconds)),
    );
  }

  #tooShort(ttlMs: number): HoldfastError {
    const least = 1_000 * this.#leastSeconds;
    return new HoldfastError(
      "INVALID_ARGUMENT",
      `ttlMs must be at least ${least - 999} here, not ${ttlMs}: this etcd grants no lease of less than ${least} ms, ` +
        "one and a half times its --election-timeout. Use a longer ttl, or a shorter election timeout.",
    );
  }

  forLife(lifeMs: number): string {
    return this.#ofClass(Math.max(classOf(lifeMs), this.#leastSeconds)).name;
  }

  #ofClass(wanted: number): EtcdLease {
    const isOneMore = !this.#bySeconds.has(wanted) && this.#bySeconds.size >= MOST_LIVES;
    const seconds = isOneMore ? 2 ** Math.ceil(Math.log2(wanted)) : wanted;
    let lease = this.#bySeconds.get(seconds);
    if (lease === undefined) {
      lease = new EtcdLease({
        connection: this.#connection,
        seconds,
        clockDrift: this.#clockDrift,
        onTooShort: (granted) => {
          this.#leastSeconds = Math.max(this.#leastSeconds, granted);
          return TOO_SHORT;
        },
        onEnd: (ended) => this.end(ended.name),
      });
      this.#bySeconds.set(seconds, lease);
      this.#byName.set(lease.name, lease);
    }
    lease.use();
    return lease;
  }

  /** Those of this process among the names. */
  own(names: Iterable<string>): EtcdLease[] {
    const leases = new Set<EtcdLease>();
    for (const name of names) {
      const lease = this.#byName.get(name);
      if (lease !== undefined) leases.add(lease);
    }
    return [...leases];
  }

  isOwn(etcdLease: string): boolean {
    return this.#byName.has(etcdLease);
  }

  hasEnded(etcdLease: string): boolean {
    return this.#ended.has(etcdLease);
  }

  lifeMs(etcdLease: string): number {
    const seconds = /^[0-9a-f]+\.(\d{1,6})$/.exec(etcdLease)?.[1];
    return 1_000 * (seconds === undefined ? UNKNOWN_LIFE_S : Number(seconds));
  }

  provenUntilMs(etcdLease: string): number {
    return this.#byName.get(etcdLease)?.provenUntilMs ?? Number.NEGATIVE_INFINITY;
  }

  /** The same for those whose answer nobody waits for. Where nothing can be learnt, the next heartbeat asks again. */
  checkAside(etcdLeases: readonly string[]): void {
    for (const etcdLease of etcdLeases) this.#toCheck.add(etcdLease);
    if (this.#isChecking || this.#toCheck.size === 0) return;
    this.#isChecking = true;
    void this.#checkAll()
      .catch(() => this.#toCheck.clear())
      .finally(() => {
        this.#isChecking = false;
      });
  }

  async #checkAll(): Promise<void> {
    while (this.#toCheck.size > 0 && !this.#closed) {
      const etcdLeases = [...this.#toCheck];
      this.#toCheck.clear();
      await this.check(etcdLeases);
    }
  }

  /** Finds out which of these have ended. Each request has so much time, or that of any. */
  async check(etcdLeases: readonly string[], withinMs?: number): Promise<void> {
    const unknown = etcdLeases.filter(
      (etcdLease) => !this.#ended.has(etcdLease) && !this.#byName.has(etcdLease),
    );
    for (let at = 0; at < unknown.length; at += this.#maxTxnOps) {
      const names = unknown.slice(at, at + this.#maxTxnOps);
      const { keys } = this.#connection;
      const looks = names.map((name) => getKey(keys.lease(name)));
      const { responses } = await this.#connection.txn({ success: looks }, withinMs);
      for (const [index, name] of names.entries()) {
        if (responses[index]?.response_range.kvs.length === 0) this.end(name);
      }
    }
  }

  stamp(): bigint {
    return this.#connection.revision << GRANTS_BITS;
  }

  /** The revision that a stamp was made from. */
  revisionOf(stamp: bigint): bigint {
    return stamp >> GRANTS_BITS;
  }

  onEnd(listener: (etcdLease: string | undefined) => void): void {
    this.#listeners.push(listener);
  }

  /** A lease has ended, for good. */
  end(name: string): void {
    const lease = this.#byName.get(name);
    if (lease !== undefined) this.#forget(lease);
    if (this.#ended.has(name)) return;
    this.#ended.add(name);
    if (this.#ended.size > MAX_ENDED) {
      for (const oldest of this.#ended) {
        this.#ended.delete(oldest);
        break;
      }
    }
    lease?.end();
    this.#tell(name);
  }

  /** They were taken to have ended, and have not. */
  doubtEnds(names: readonly string[]): void {
    for (const name of names) this.#ended.delete(name);
  }

  /** Leases may have ended without anybody having told. */
  missed(): void {
    this.#tell(undefined);
  }

  #tell(name: string | undefined): void {
    if (!this.#closed) for (const listener of this.#listeners) listener(name);
  }

  /** Makes sure that no swap that was given up is made after this. */
  async settleDoubts(): Promise<void> {
    const doubtful = [...this.#byName.values()].filter((lease) => lease.isDoubtful);
    await Promise.all(doubtful.map((lease) => lease.settle()));
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  // Signs of life.

  #schedule(): void {
    if (this.#closed) return;
    let dueMs = Number.POSITIVE_INFINITY;
    for (const lease of this.#byName.values()) if (lease.isReady) dueMs = Math.min(dueMs, lease.dueMs);
    this.#timer?.cancel();
    this.#timer = undefined;
    if (dueMs === Number.POSITIVE_INFINITY) return;
    const delayMs = Math.max(RETRY_MS, dueMs - this.#connection.clock.monotonicMs());
    this.#timer = this.#connection.clock.setTimer(delayMs, () => this.#showLife());
  }

  #showLife(): void {
    const nowMs = this.#connection.clock.monotonicMs();
    for (const lease of this.#byName.values()) {
      if (!lease.isReady || lease.dueMs > nowMs + RETRY_MS / 2) continue;
      // No claim can hang on it any more, since each use promises no more than its life.
      if (nowMs - lease.usedMs > Math.max(IDLE_MS, 2_000 * lease.seconds)) this.#forget(lease);
      // What fails is repeated. Whoever relies on the lease sees by itself what is proven.
      else lease.showLife().catch(() => {});
    }
    this.#schedule();
  }

  #forget(lease: EtcdLease): void {
    this.#byName.delete(lease.name);
    if (this.#bySeconds.get(lease.seconds) === lease) this.#bySeconds.delete(lease.seconds);
  }
}

const TOO_SHORT = new Error("The server grants no lease with such a short ttl.");

/** Whole seconds, and from 100 on two digits of them: a process has few leases, whatever the ttls. */
export function classOf(lifeMs: number): number {
  const seconds = Math.max(1, Math.ceil(lifeMs / 1_000));
  if (seconds < 100) return seconds;
  const unit = 10 ** (Math.floor(Math.log10(seconds)) - 1);
  return Math.ceil(seconds / unit) * unit;
}
