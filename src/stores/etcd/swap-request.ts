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
import type { Keys } from "./keys.ts";
import type { Lease } from "./lease.ts";
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

/** How many operations a change may have inside. One that drops and assumes as many keepers as it may has 17 comparisons. */
export const INNER_OPERATIONS = 18;
/** How many leases of others are looked at together with the changes that only compare; further ones in requests of their own. */
export const LOOKED_AT = 10;

export interface SwapContext {
  readonly keys: Keys;
  /** The leases of this process that the changes rely on. */
  readonly leases: readonly Lease[];
  /** The revision that fences were made from. */
  readonly revision: bigint;
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
    const asked = looksFor(changes.filter(({ keepers }) => keepers?.isAsked === true));
    const looks = [...new Set([...asked, ...looksFor(changes)])];
    this.#looks = looks.slice(0, LOOKED_AT);
    this.furtherLooks = looks.slice(LOOKED_AT, Math.max(LOOKED_AT, asked.length));
    this.laterLooks = looks.slice(Math.max(LOOKED_AT, asked.length));
    const success = changes.map((change) => this.#operation(change));
    for (const name of this.#looks) success.push(getKey(keys.keeper(name)));
    this.request = { compare, success, failure };
  }

  #operation(change: Change): EtcdRequestOp {
    const { keys } = this.#context;
    const { key, text, keepers } = change;
    const record = keys.record(key);
    const expected = expectedRevision(change);
    if (text === undefined) return expected === undefined ? get(record) : getIfWrittenAfter(record, expected);
    const compare = [hasRevision(record, expected)];
    const failure = [get(record)];
    for (const name of keepers?.alive ?? []) {
      compare.push(exists(keys.keeper(name)));
      failure.push(getKey(keys.keeper(name)));
    }
    for (const name of keepers?.ended ?? []) compare.push(isAbsent(keys.keeper(name)));
    return nested({ compare, success: [put(record, text), ...this.#wakes(change)], failure });
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

  /** `gone`: those of the further leases that have ended. */
  outcome(response: EtcdTxnResponse, gone: readonly string[]): SwapOutcome {
    if (!response.succeeded) return this.#refused(response.responses);
    const [ended, doubted]: [Set<string>, string[]] = [new Set(gone), []];
    const looks = response.responses.slice(this.#changes.length);
    for (const [index, name] of this.#looks.entries()) {
      if (isEmpty(looks[index])) ended.add(name);
    }
    const results = this.#changes.map((change, index): ChangeResult => {
      const answer = response.responses[index] as EtcdResponseOp;
      if (change.text === undefined) return compared(change, answer.response_range, ended);
      const { succeeded, responses } = answer.response_txn;
      if (succeeded) return { state: "swapped", version: response.header.revision };
      return this.#conflict(change, responses, ended, doubted);
    });
    return { results, ended: [...ended], doubted };
  }

  #conflict(
    change: Change,
    [record, ...others]: readonly EtcdResponseOp[],
    ended: Set<string>,
    doubted: string[],
  ): ChangeResult {
    const current = storedRecord(record?.response_range.kvs[0]);
    const { alive = [], ended: dropped = [] } = change.keepers ?? {};
    const gone = alive.filter((_, index) => isEmpty(others[index]));
    for (const name of gone) ended.add(name);
    // It is what was to be written: the client has sent the request again by itself, after it had been served.
    if (current !== undefined && current.text === change.text)
      return { state: "swapped", version: current.version };
    if (current?.version === change.expected && gone.length === 0) doubted.push(...dropped);
    return { state: "conflict", current };
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
 */
export function jointRequest(
  changes: readonly Change[],
  { keys, leases }: SwapContext,
  maxTxnOps: number,
): EtcdTxnRequest | undefined {
  if (changes.length === 1 || leases.length + changes.length > maxTxnOps) return undefined;
  const compare = leases.map((lease) => hasRevision(lease.key, lease.epoch));
  const success: EtcdRequestOp[] = [];
  for (const change of changes) {
    const { key, text } = change;
    const expected = expectedRevision(change);
    if (expected === undefined || text === undefined || !isPlain(change)) return undefined;
    const record = keys.record(key);
    compare.push(hasRevision(record, expected));
    success.push(put(record, text));
  }
  return { compare, success };
}

/** Whether it wakes nobody, and takes nothing for granted of the leases of others. */
function isPlain({ wakes, keepers }: Change): boolean {
  if (wakes.length > 0) return false;
  return keepers === undefined || keepers.alive.length + keepers.ended.length === 0;
}

/** Nothing was written, and the operations have to be decided again. */
export function untimely(changes: readonly Change[]): ChangeResult[] {
  return changes.map(() => ({ state: "untimely" }));
}

/** The revision of a record is its version; etcd never uses one twice. */
function expectedRevision({ expected }: Change): string | undefined {
  return expected === undefined ? undefined : String(expected);
}

function looksFor(changes: readonly Change[]): readonly string[] {
  const names = new Set<string>();
  for (const { text, keepers } of changes) {
    if (text === undefined) for (const name of keepers?.alive ?? []) names.add(name);
  }
  return [...names];
}

function compared(
  change: Change,
  { kvs, count }: EtcdRangeResponse,
  ended: ReadonlySet<string>,
): ChangeResult {
  const current = storedRecord(kvs[0]);
  if (current !== undefined) return { state: "conflict", current };
  if (change.expected !== undefined && count === "0") return { state: "conflict", current: undefined };
  return change.keepers?.alive.some((name) => ended.has(name)) ? { state: "untimely" } : { state: "same" };
}

export function storedRecord(kv: EtcdKeyValue | undefined): StoredRecord | undefined {
  return kv === undefined ? undefined : { version: kv.mod_revision, text: kv.value.toString("utf8") };
}

function isEmpty(answer: EtcdResponseOp | undefined): boolean {
  return answer?.response_range.kvs.length === 0;
}
