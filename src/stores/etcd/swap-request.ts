/**
 * A batch of changes as one transaction of etcd, and what its answer says of each. Where all of them are likely to be made, they
 * go jointly, as one that makes all or none; else, or when that was refused, each is a transaction inside of one.
 *
 * Outside stands what holds for all of them: that this process's leases are what it thinks, and, where a record is made, that
 * none was removed since the revision that its fence was made from. Inside, each change that writes is a transaction of
 * its own, with its own comparisons. A change that only compares is a look; if all are, the whole is one that costs no
 * entry in etcd's log.
 */
import type { Change, ChangeResult, StoredRecord } from "../cas/index.ts";
import type {
  EtcdCompare,
  EtcdKeyValue,
  EtcdRangeResponse,
  EtcdRequestOp,
  EtcdResponseOp,
  EtcdTxnRequest,
  EtcdTxnResponse,
} from "./client.ts";
import type { EtcdLease } from "./etcd-lease.ts";
import type { Keys } from "./keys.ts";
import {
  exists,
  get,
  getIfWrittenAfter,
  getKey,
  hasRevision,
  isAbsent,
  isNotWrittenSince,
  nested,
  put,
} from "./requests.ts";

/** How many operations a change may have inside. One that drops and assumes as many etcd leases as it may has 17 comparisons. */
export const INNER_OPERATIONS = 18;
/** How many leases of others are looked at together with the changes that only compare; further ones in requests of their own. */
export const LOOKED_AT = 10;

export interface SwapContext {
  readonly keys: Keys;
  /** The leases of this process that the changes rely on. */
  readonly leases: readonly EtcdLease[];
  /** The revision that fences were made from. */
  readonly revision: bigint;
  /** Which of the histories of the cluster this is, as the connection counts them. */
  readonly history: number;
  /** What wake-ups hang on, where there are any. */
  readonly wakeLease: string | undefined;
}

/** What became of a batch. */
export interface SwapOutcome {
  readonly results: readonly ChangeResult[];
  /** Leases of others that were taken to be alive, and have ended. */
  readonly ended: readonly string[];
  /** Leases that may not have ended, although they were taken to. */
  readonly doubted: readonly string[];
}

/** What became of the look at those leases that there was no room for. */
export interface FurtherLook {
  readonly ended?: readonly string[];
  /** Nothing, for this reason. */
  readonly failure?: unknown;
}

export class SwapRequest {
  readonly request: EtcdTxnRequest;
  readonly #changes: readonly Change[];
  readonly #context: SwapContext;
  /** What the request compares of the leases of this process. */
  readonly #epochs: readonly string[];
  /** Leases of others that are looked at once for all changes that only compare. */
  readonly #looks: readonly string[];
  /** Those that there is no room for, and whose end would change an answer that somebody waits for. */
  readonly furtherLooks: readonly string[];
  /** The others, which are heartbeats': they have time until the next one. */
  readonly laterLooks: readonly string[];

  constructor(changes: readonly Change[], context: SwapContext) {
    this.#changes = changes;
    this.#context = context;
    const { keys, leases, revision } = context;
    this.#epochs = leases.map(({ epoch }) => epoch);
    const compare: EtcdCompare[] = leases.map((lease) => hasRevision(lease.key, lease.epoch));
    const failure: EtcdRequestOp[] = leases.map((lease) => getKey(lease.key));
    if (changes.some(({ expected, text }) => expected === undefined && text !== undefined)) {
      compare.push(isNotWrittenSince(keys.swept, revision));
    }
    failure.push(getKey(keys.swept));
    const asked = looksFor(changes.filter(({ leases }) => leases?.isAsked === true));
    const looks = [...new Set([...asked, ...looksFor(changes)])];
    this.#looks = looks.slice(0, LOOKED_AT);
    this.furtherLooks = looks.slice(LOOKED_AT, Math.max(LOOKED_AT, asked.length));
    this.laterLooks = looks.slice(Math.max(LOOKED_AT, asked.length));
    const success = changes.map((change) => this.#operation(change));
    for (const name of this.#looks) success.push(getKey(keys.lease(name)));
    this.request = { compare, success, failure };
  }

  #operation(change: Change): EtcdRequestOp {
    const { keys } = this.#context;
    const { key, text, leases } = change;
    const record = keys.record(key);
    if (this.#isOutdated(change)) return get(record);
    const expected = expectedRevision(change);
    if (text === undefined) return expected === undefined ? get(record) : getIfWrittenAfter(record, expected);
    const compare = [hasRevision(record, expected)];
    const failure = [get(record)];
    for (const name of leases?.alive ?? []) {
      compare.push(exists(keys.lease(name)));
      failure.push(getKey(keys.lease(name)));
    }
    for (const name of leases?.ended ?? []) compare.push(isAbsent(keys.lease(name)));
    return nested({ compare, success: [put(record, text), ...this.#wakes(change)], failure });
  }

  /**
   * (1) The process knows a record by a revision, and the cluster is restored from a backup that is older. (2) The process notices, and others write until
   * the cluster has that revision again: with the record of somebody who holds the lock. (3) The process would find the revision that it
   * expects, and write over it. So what is known from before is asked for anew.
   */
  #isOutdated({ expected }: Change): boolean {
    return expected !== undefined && historyOf(expected) !== this.#context.history;
  }

  /** One for each owner, as far as there is room: losing one costs time only. */
  #wakes({ key, wakes }: Change): EtcdRequestOp[] {
    const { keys, wakeLease } = this.#context;
    const byOwner = new Map<string, [id: string, fence: string][]>();
    for (const { owner, id, fence } of wakes) {
      const grants = byOwner.get(owner) ?? [];
      byOwner.set(owner, grants);
      grants.push([id, String(fence)]);
    }
    return [...byOwner]
      .slice(0, INNER_OPERATIONS - 1)
      .map(([owner, grants]) => put(keys.wake(owner, key), JSON.stringify(grants), wakeLease));
  }

  outcome(response: EtcdTxnResponse, further: FurtherLook): SwapOutcome {
    if (!response.succeeded) return this.#refused(response.responses);
    const [ended, doubted]: [Set<string>, string[]] = [new Set(further.ended), []];
    const looks = response.responses.slice(this.#changes.length);
    for (const [index, name] of this.#looks.entries()) {
      if (isEmpty(looks[index])) ended.add(name);
    }
    const results = this.#changes.map((change, index): ChangeResult => {
      const answer = response.responses[index] as EtcdResponseOp;
      if (change.text === undefined || this.#isOutdated(change)) {
        const result = this.#compared(change, answer.response_range, ended);
        return result.state === "same" && this.#isUnsure(change, further) ? failed(further.failure) : result;
      }
      const { succeeded, responses } = answer.response_txn;
      if (succeeded) return { state: "swapped", version: this.#versionOf(response.header.revision) };
      return this.#conflict(change, responses, ended, doubted);
    });
    if (doubted.length > 0) this.#doubtOwn();
    return { results, ended: [...ended], doubted };
  }

  #conflict(
    change: Change,
    [record, ...others]: readonly EtcdResponseOp[],
    ended: Set<string>,
    doubted: string[],
  ): ChangeResult {
    const current = storedRecord(this.#context.history, record?.response_range.kvs[0]);
    const { alive = [], ended: dropped = [] } = change.leases ?? {};
    const gone = alive.filter((_, index) => isEmpty(others[index]));
    for (const name of gone) ended.add(name);
    // It is what was to be written: the client has sent the request again by itself, after it had been served.
    if (current !== undefined && current.text === change.text)
      return { state: "swapped", version: current.version };
    if (current?.version === change.expected && gone.length === 0) doubted.push(...dropped);
    return { state: "conflict", current };
  }

  #compared(change: Change, { kvs, count }: EtcdRangeResponse, ended: ReadonlySet<string>): ChangeResult {
    const current = storedRecord(this.#context.history, kvs[0]);
    if (current !== undefined) return { state: "conflict", current };
    if (change.expected !== undefined && count === "0") return { state: "conflict", current: undefined };
    return change.leases?.alive.some((name) => ended.has(name)) ? { state: "untimely" } : { state: "same" };
  }

  /**
   * Whether somebody would be refused for a lease that could not be looked at. A try asks once, so that is an outage and not contention;
   * who only renews asks again with the next heartbeat.
   */
  #isUnsure({ leases }: Change, { failure }: FurtherLook): boolean {
    if (failure === undefined || leases?.isAsked !== true) return false;
    return leases.alive.some((name) => this.furtherLooks.includes(name));
  }

  /**
   * Of what a request compares, only that a lease has ended can become true later. (1) A lease is wrongly taken to have ended. (2) The client
   * sends a request twice, and the first copy is held up; the second is a conflict, and the caller is told that the lock is taken.
   * (3) The lease ends, and the first copy arrives. Nobody would know of the claim that it makes.
   */
  #doubtOwn(): void {
    for (const [index, lease] of this.#context.leases.entries())
      lease.doubt(this.#epochs[index] ?? lease.epoch);
  }

  #versionOf(revision: string): string {
    return versionOf(this.#context.history, revision);
  }

  /** Nothing was done: this process was wrong about its own leases, or records were removed meanwhile. */
  #refused(responses: readonly EtcdResponseOp[]): SwapOutcome {
    for (const [index, lease] of this.#context.leases.entries()) {
      const kv = responses[index]?.response_range.kvs[0];
      if (kv === undefined) lease.end();
      else lease.learnRefusal(kv.mod_revision, this.#epochs[index] ?? lease.epoch);
    }
    return { results: untimely(this.#changes), ended: [], doubted: [] };
  }
}

/**
 * Changes that only write records that are known, as one transaction that makes all of them or none: that is less
 * work for etcd and for this process than one with a transaction inside for each. Undefined where there are others among them, or too
 * many comparisons. A single one has nothing to gain, and would learn of a conflict later.
 *
 * It is inside of another one as well. Where etcd's space is used up it refuses whatever writes at the outside, and a client that is refused
 * keeps away from the server for a while, also with heartbeats that write nothing.
 */
export function jointRequest(
  changes: readonly Change[],
  { keys, leases, history }: SwapContext,
  maxTxnOps: number,
): EtcdTxnRequest | undefined {
  if (changes.length === 1 || leases.length + changes.length >= maxTxnOps) return undefined;
  const compare = leases.map((lease) => hasRevision(lease.key, lease.epoch));
  const success: EtcdRequestOp[] = [];
  for (const change of changes) {
    const { key, text } = change;
    const expected = expectedRevision(change);
    if (expected === undefined || text === undefined || !isPlain(change)) return undefined;
    if (historyOf(change.expected) !== history) return undefined;
    const record = keys.record(key);
    compare.push(hasRevision(record, expected));
    success.push(put(record, text));
  }
  return { success: [nested({ compare, success, failure: [] })] };
}

/** Whether it wakes nobody, and takes nothing for granted of the leases of others. */
function isPlain({ wakes, leases }: Change): boolean {
  if (wakes.length > 0) return false;
  return leases === undefined || leases.alive.length + leases.ended.length === 0;
}

/** Nothing was written, and the operations have to be decided again. */
export function untimely(changes: readonly Change[]): ChangeResult[] {
  return changes.map(() => ({ state: "untimely" }));
}

/** The version of a record is its revision, which etcd never uses twice in one history. A restore from a backup begins another one. */
export function versionOf(history: number, revision: string): string {
  return `${history}:${revision}`;
}

function expectedRevision({ expected }: Change): string | undefined {
  if (expected === undefined) return undefined;
  const version = String(expected);
  return version.slice(version.indexOf(":") + 1);
}

function historyOf(version: Change["expected"]): number {
  return Number.parseInt(String(version), 10);
}

function looksFor(changes: readonly Change[]): readonly string[] {
  const names = new Set<string>();
  for (const { text, leases } of changes) {
    if (text === undefined) for (const name of leases?.alive ?? []) names.add(name);
  }
  return [...names];
}

export function storedRecord(history: number, kv: EtcdKeyValue | undefined): StoredRecord | undefined {
  if (kv === undefined) return undefined;
  return { version: versionOf(history, kv.mod_revision), text: kv.value.toString("utf8") };
}

function failed(error: unknown): ChangeResult {
  return { state: "failed", error };
}

function isEmpty(answer: EtcdResponseOp | undefined): boolean {
  return answer?.response_range.kvs.length === 0;
}
