/**
 * As much of etcd as the store asks for, as one machine of the simulation: keys with revisions, transactions, leases, watches,
 * and leaders that change. Whatever is written is there for good. Leases are known to the leader alone, as in etcd.
 */
import type {
  EtcdCompare,
  EtcdHeader,
  EtcdKeepAlive,
  EtcdKeyValue,
  EtcdRangeRequest,
  EtcdRangeResponse,
  EtcdRequestOp,
  EtcdResponseOp,
  EtcdTxnRequest,
  EtcdTxnResponse,
} from "../../src/stores/etcd/client.ts";
import type { Event, Machine, World } from "./world.ts";

/** What an error of the client is told by is the name of its class. */
export class EtcdLeaseInvalidError extends Error {}
export class GRPCFailedPreconditionError extends Error {}

/** etcd's leader looks for leases that are over every half second. */
const MAX_SLACK_MS = 500;
/** For how long a former leader may not have noticed that there is another. */
const MAX_FORMER_MS = 3_000;

/** One content of a key. It is never changed, only replaced. */
export interface Row extends EtcdKeyValue {
  readonly lease: string | undefined;
}

interface Lease {
  readonly id: string;
  readonly lifeMs: number;
  readonly process: Machine;
  readonly keys: Set<string>;
  /** On the leader's monotonic clock. */
  endsMs: number;
  /** The next look whether it is over. */
  look: Event | undefined;
}

/** A leader that was paused, and believes to be one still. */
interface Former {
  readonly term: bigint;
  readonly untilMs: number;
  readonly ends: Map<string, number>;
  /** The processes whose signs of life it answers. */
  readonly followers: ReadonlySet<Machine>;
}

export interface WatchEvent {
  readonly type: "written" | "removed";
  readonly kv: EtcdKeyValue;
}

/** How often histories have come to what they are for. */
export interface Met {
  /** LeaseRegistry that ended because their process died. */
  deaths: number;
  /** LeaseRegistry of processes that lived on, and were paused or not heard of for too long. */
  silences: number;
  /** Signs of life that came when the etcd lease had ended. */
  lateSigns: number;
  /** Signs of life whose answers were late. */
  lateAnswers: number;
  /** Signs of life that a former leader has answered. */
  formerSigns: number;
  /** Changes that were not made, because a etcd lease of others was not what it was taken to be. */
  conflicts: number;
  /** Requests refused because a etcd lease of the process itself was not. */
  refusals: number;
}

export class EtcdCluster {
  readonly rows = new Map<string, Row>();
  readonly met: Met = {
    deaths: 0,
    silences: 0,
    lateSigns: 0,
    lateAnswers: 0,
    formerSigns: 0,
    conflicts: 0,
    refusals: 0,
  };
  readonly watchers = new Set<(events: readonly WatchEvent[]) => void>();
  readonly #world: World;
  readonly #machine: Machine;
  readonly #leaseKeys: string;
  readonly #leases = new Map<string, Lease>();
  #former: Former | undefined;
  #revision = 1n;
  #term = 2n;
  #ids = 0;

  /** Keys of etcd leases begin with this. */
  constructor(world: World, machine: Machine, leaseKeys: string) {
    this.#world = world;
    this.#machine = machine;
    this.#leaseKeys = leaseKeys;
  }

  get header(): EtcdHeader {
    return { revision: `${this.#revision}`, raft_term: `${this.#term}` };
  }

  /** Makes a backup, and returns what restores it. Leases live on, as they begin anew with what was restored. */
  backup(): () => void {
    const [rows, revision] = [new Map(this.rows), this.#revision];
    return () => {
      this.rows.clear();
      for (const [name, row] of rows) this.rows.set(name, row);
      this.#revision = revision;
    };
  }

  /** For how long a key is certain to be there by its lease; undefined where there is no such key. */
  leftMs(key: string): number | undefined {
    const row = this.rows.get(key);
    const lease = this.#leases.get(row?.lease ?? "");
    return lease && lease.endsMs - this.#nowMs();
  }

  // Keys.

  range({ key, range_end: end, limit, keys_only: bare, min_mod_revision: from = 0 }: EtcdRangeRequest) {
    const first = nameOf(key);
    const found =
      end === undefined
        ? [this.rows.get(first)].filter((row) => row !== undefined)
        : [...this.rows.entries()]
            .filter(([name]) => name >= first && name < nameOf(end))
            .sort(([a], [b]) => (a < b ? -1 : 1))
            .map(([, row]) => row);
    const kvs = found
      .filter((row) => BigInt(row.mod_revision) >= BigInt(from))
      .slice(0, limit === undefined ? undefined : Number(limit))
      .map((row) => (bare ? { ...row, value: Buffer.alloc(0) } : row));
    return { header: this.header, kvs, count: `${found.length}` } satisfies EtcdRangeResponse;
  }

  /** All that it writes has one revision. It writes nothing if a lease is missing that a key is to hang on. */
  txn(request: EtcdTxnRequest): EtcdTxnResponse {
    const writes: (() => WatchEvent | undefined)[] = [];
    const response = this.#decide(request, writes, false);
    if (writes.length === 0) return response;
    this.#revision++;
    this.#tell(writes.map((write) => write()));
    return this.#stamped(response);
  }

  #decide(request: EtcdTxnRequest, writes: (() => WatchEvent | undefined)[], isInner: boolean) {
    const { compare = [], success = [], failure = [] } = request;
    const wrong = compare.filter((each) => !this.#holds(each));
    if (wrong.some(({ key }) => nameOf(key).startsWith(this.#leaseKeys))) {
      if (isInner) this.met.conflicts++;
      else this.met.refusals++;
    }
    const succeeded = wrong.length === 0;
    // Changes that only compare look at etcd leases outside.
    if (succeeded && !isInner && success.some((asked) => this.#isMissingLease(asked))) this.met.conflicts++;
    const responses = (succeeded ? success : failure).map((asked) => this.#serve(asked, writes));
    return { header: this.header, succeeded, responses } satisfies EtcdTxnResponse;
  }

  #serve(asked: EtcdRequestOp, writes: (() => WatchEvent | undefined)[]): EtcdResponseOp {
    const {
      request_range: looked,
      request_put: put,
      request_delete_range: removal,
      request_txn: txn,
    } = asked;
    const response: Partial<{ -readonly [Part in keyof EtcdResponseOp]: EtcdResponseOp[Part] }> = {};
    if (looked !== undefined) response.response_range = this.range(looked);
    if (txn !== undefined) response.response_txn = this.#decide(txn, writes, true);
    if (removal !== undefined) writes.push(() => this.#remove(nameOf(removal.key)));
    if (put !== undefined) {
      const lease = put.lease === undefined ? undefined : String(put.lease);
      if (lease !== undefined && !this.#leases.has(lease)) throw new EtcdLeaseInvalidError("no such lease");
      writes.push(() => this.#put(put.key ?? Buffer.alloc(0), put.value ?? Buffer.alloc(0), lease));
    }
    return response as EtcdResponseOp;
  }

  #isMissingLease({ request_range: looked }: EtcdRequestOp): boolean {
    const name = nameOf(looked?.key);
    return name.startsWith(this.#leaseKeys) && !this.rows.has(name);
  }

  #holds({ key, target, result, create_revision: created, mod_revision: changed }: EtcdCompare): boolean {
    const actual = BigInt(this.rows.get(nameOf(key))?.mod_revision ?? 0);
    // The store compares when a key was created with 0 alone, to know whether there is one.
    const asked = BigInt((target === "Create" ? created : changed) ?? 0);
    if (result === "Equal") return actual === asked;
    return result === "Less" ? actual < asked : actual > asked;
  }

  #put(key: Buffer, value: Buffer, lease: string | undefined): WatchEvent {
    const name = nameOf(key);
    this.#leases.get(this.rows.get(name)?.lease ?? "")?.keys.delete(name);
    this.#leases.get(lease ?? "")?.keys.add(name);
    const kv = { key, value, mod_revision: `${this.#revision}`, lease };
    this.rows.set(name, kv);
    return { type: "written", kv };
  }

  #remove(name: string): WatchEvent | undefined {
    const row = this.rows.get(name);
    if (row === undefined) return undefined;
    this.rows.delete(name);
    this.#leases.get(row.lease ?? "")?.keys.delete(name);
    const kv = { key: row.key, value: Buffer.alloc(0), mod_revision: `${this.#revision}` };
    return { type: "removed", kv };
  }

  #tell(events: readonly (WatchEvent | undefined)[]): void {
    const told = events.filter((event) => event !== undefined);
    for (const watcher of this.watchers) watcher(told);
  }

  /** An answer is given when all is done, with the revision that this has. */
  #stamped(response: EtcdTxnResponse): EtcdTxnResponse {
    return { ...response, header: this.header };
  }

  // Leases.

  grant(process: Machine, seconds: number, chosenId?: string): { ID: string; TTL: string } {
    const id = chosenId ?? `${++this.#ids}`;
    if (this.#leases.has(id)) throw new GRPCFailedPreconditionError("the lease exists");
    const lifeMs = 1_000 * seconds;
    const endsMs = this.#nowMs() + lifeMs;
    const lease: Lease = { id, lifeMs, process, keys: new Set(), endsMs, look: undefined };
    this.#leases.set(id, lease);
    this.#lookLater(lease);
    return { ID: id, TTL: `${seconds}` };
  }

  timeToLive(id: string): { TTL: string; grantedTTL: string } {
    const lease = this.#leases.get(id);
    if (lease === undefined) return { TTL: "-1", grantedTTL: "0" };
    const leftMs = lease.endsMs - this.#nowMs();
    return { TTL: `${Math.trunc(leftMs / 1_000)}`, grantedTTL: `${lease.lifeMs / 1_000}` };
  }

  /** Undefined where whoever believes to be the leader knows no answer. */
  keepAlive(process: Machine, id: string): EtcdKeepAlive | undefined {
    const nowMs = this.#nowMs();
    const former = this.#former;
    if (former !== undefined && nowMs < former.untilMs && former.followers.has(process)) {
      return this.#keepFormer(former, id);
    }
    const lease = this.#leases.get(id);
    if (lease === undefined || lease.endsMs <= nowMs) {
      this.met.lateSigns++;
      if (lease !== undefined) this.#end(lease);
      return { header: this.header, ID: id, TTL: "0" };
    }
    lease.endsMs = nowMs + lease.lifeMs;
    return { header: this.header, ID: id, TTL: `${lease.lifeMs / 1_000}` };
  }

  /** It renews what it knows without asking anybody, and nobody else learns of it. */
  #keepFormer({ term, ends }: Former, id: string): EtcdKeepAlive | undefined {
    const lease = ends.get(id);
    const nowMs = this.#nowMs();
    const lifeMs = this.#leases.get(id)?.lifeMs ?? 1_000;
    if (lease === undefined || lease <= nowMs) return undefined;
    ends.set(id, nowMs + lifeMs);
    this.met.formerSigns++;
    return {
      header: { revision: `${this.#revision}`, raft_term: `${term}` },
      ID: id,
      TTL: `${lifeMs / 1_000}`,
    };
  }

  revoke(id: string): void {
    const lease = this.#leases.get(id);
    if (lease !== undefined) this.#end(lease);
  }

  /** There is another leader, which gives every lease its full time. The one before it may go on for a while. */
  elect(processes: readonly Machine[], formerMs?: number): void {
    const { random } = this.#world;
    const nowMs = this.#nowMs();
    const ends = new Map([...this.#leases].map(([id, { endsMs }]) => [id, endsMs] as const));
    // Where a test says for how long, all of them follow it.
    const followers = new Set(processes.filter(() => formerMs !== undefined || random.chance(0.5)));
    const untilMs = nowMs + (formerMs ?? random.between(0, MAX_FORMER_MS));
    this.#former = { term: this.#term, untilMs, ends, followers };
    this.#term++;
    for (const lease of this.#leases.values()) {
      lease.endsMs = nowMs + lease.lifeMs;
      this.#lookLater(lease);
    }
  }

  #lookLater(lease: Lease): void {
    if (lease.look !== undefined) this.#world.cancel(lease.look);
    const leftMs = Math.max(0, lease.endsMs - this.#nowMs());
    const slackMs = this.#world.random.between(1, MAX_SLACK_MS);
    lease.look = this.#world.in(leftMs / this.#machine.rate + slackMs, () =>
      this.#machine.do(() => {
        if (this.#leases.get(lease.id) !== lease) return;
        if (lease.endsMs <= this.#nowMs()) this.#end(lease);
        else this.#lookLater(lease);
      }),
    );
  }

  #end(lease: Lease): void {
    if (lease.look !== undefined) this.#world.cancel(lease.look);
    const isEtcdLease = [...lease.keys].some((name) => name.startsWith(this.#leaseKeys));
    this.#world.say(() => `--- a lease of ${lease.process.name} ends${isEtcdLease ? ", of claims" : ""}`);
    if (isEtcdLease) this.met[lease.process.dead ? "deaths" : "silences"]++;
    this.#leases.delete(lease.id);
    if (lease.keys.size === 0) return;
    this.#revision++;
    this.#tell([...lease.keys].map((name) => this.#remove(name)));
  }

  #nowMs(): number {
    return this.#machine.clock.monotonicMs();
  }
}

/** Names compare as their bytes do. */
export function nameOf(key: Buffer | undefined): string {
  return key?.toString("latin1") ?? "";
}
