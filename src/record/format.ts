/**
 * How a record is written down, by every store that keeps it as one value. docs/record-format.md describes it.
 *
 * It is JSON, so that a person with a database shell can read it; fields at their default are left out, since most
 * records are one plain mutex claim.
 */
import { HoldfastError, UNLIMITED } from "../store/index.ts";
import { emptyRecord } from "./new-record.ts";
import { addHeld, addWaiting, byTurn, type LockRecord, type RecordClaim } from "./record.ts";

/** The version this release writes. It reads this one and every older one. */
export const RECORD_VERSION = 1;

/**
 * Written by hand, as stores write a record with every change: `JSON.stringify` of an object made for it takes three times
 * as long, which was a quarter of all that a change costs this process.
 */
export function encodeRecord(record: LockRecord): string {
  const { held, queue } = record;
  if (held.length === 0 && queue.length === 0) return idleText(RECORD_VERSION, record.fence);
  const heldText = held.length === 0 ? "" : listText(inOrder(held, byFence));
  const waitingText = queue.length === 0 ? "" : listText(inOrder(queue, byTurn));
  return `${headText(RECORD_VERSION, record.fence)}${heldText}],"waiting":[${waitingText}]}`;
}

/** Reads a record back. Rejects with `STORE_FAILURE` what it does not fully understand, rather than guess. */
export function decodeRecord(text: string, key: string): LockRecord {
  const stored = parse(text, key);
  if (stored["v"] !== RECORD_VERSION) {
    throw unreadable(
      key,
      `its version is ${JSON.stringify(stored["v"])}, this release reads ${RECORD_VERSION}`,
    );
  }
  const record = emptyRecord();
  record.fence = readFence(stored, "fence", key);
  for (const item of readList(stored, "held", key)) {
    const claim = readClaim(item, record.arrivals++, key);
    claim.fence = readFence(item, "fence", key);
    // A fence of 0 marks who waits, and one above the record's would be given out again.
    if (claim.fence === 0n || claim.fence > record.fence) {
      throw unreadable(key, `the fence of "${claim.id}" is not from 1 to the record's`);
    }
    claim.agreedBy = readText(item, "agreedBy", key, "");
    claim.acquiredAtMs = readNumber(item, "acquiredAtMs", key);
    claim.promisedUntilMs = readNumber(item, "promisedUntilMs", key, 0);
    addHeld(record, claim);
  }
  for (const item of readList(stored, "waiting", key)) {
    addWaiting(record, readClaim(item, record.arrivals++, key));
  }
  return record;
}

function inOrder(claims: readonly RecordClaim[], order: (a: RecordClaim, b: RecordClaim) => number) {
  return claims.length === 1 ? claims : [...claims].sort(order);
}

function byFence(a: RecordClaim, b: RecordClaim): number {
  return a.fence < b.fence ? -1 : 1;
}

function listText(claims: readonly RecordClaim[]): string {
  let text = "";
  for (const claim of claims) text += `${text === "" ? "" : ","}${claimText(claim)}`;
  return text;
}

/**
 * Records that are written together mostly have the same fence, times and owner, so what was last made of those is kept. Numbers of
 * that size are slow to write, and each piece that a text is put together from costs as much again when it is sent.
 */
function remembering<A, B>(write: (a: A, b: B) => string): (a: A, b: B) => string {
  let lastA: A | undefined;
  let lastB: B | undefined;
  let text: string | undefined;
  return (a, b) => {
    if (text === undefined || a !== lastA || b !== lastB) {
      text = write(a, b);
      lastA = a;
      lastB = b;
    }
    return text;
  };
}

const headText = remembering(
  (version: number, fence: bigint) => `{"v":${version},"fence":"${fence}","held":[`,
);

const idleText = remembering(
  (version: number, fence: bigint) => `{"v":${version},"fence":"${fence}","held":[],"waiting":[]}`,
);

const lifeText = remembering(
  (ttlMs: number, expiresAtMs: number) => `,"ttlMs":${ttlMs},"expiresAtMs":${expiresAtMs}`,
);

const keptText = remembering(
  (ttlMs: number, etcdLease: string) => `,"ttlMs":${ttlMs},"etcdLease":${quoted(etcdLease)}`,
);

const ownerText = remembering((owner: string, info: string) => {
  const text = owner === "" ? "" : `,"owner":${quoted(owner)}`;
  return info === "" ? text : `${text},"info":${quoted(info)}`;
});

const grantText = remembering(
  (fence: bigint, acquiredAtMs: number) => `,"fence":"${fence}","acquiredAtMs":${acquiredAtMs}`,
);

function claimText(claim: RecordClaim): string {
  const { id, token, etcdLease, weight, limit, priority, ttlMs, application, agreedBy } = claim;
  let text = `{"id":${quoted(id)}`;
  text += etcdLease === "" ? lifeText(ttlMs, claim.expiresAtMs) : keptText(ttlMs, etcdLease);
  if (token !== id) text += `,"token":${quoted(token)}`;
  if (weight !== 1) text += `,"weight":${weight}`;
  // 0 stands for no limit.
  if (limit !== 1) text += `,"limit":${limit === UNLIMITED ? 0 : limit}`;
  if (priority !== 0) text += `,"priority":${priority}`;
  text += ownerText(claim.owner, claim.info);
  if (application !== "") text += `,"application":${quoted(application)}`;
  if (claim.fence !== 0n) {
    text += grantText(claim.fence, claim.acquiredAtMs);
    if (agreedBy !== "") text += `,"agreedBy":${quoted(agreedBy)}`;
    if (claim.promisedUntilMs !== 0) {
      // With an etcd lease, other processes read only that the former caller exists, not its times.
      text += `,"promisedUntilMs":${etcdLease === "" ? claim.promisedUntilMs : 1}`;
    }
  }
  return `${text}}`;
}

function quoted(text: string): string {
  return isPlain(text) ? `"${text}"` : JSON.stringify(text);
}

/** Whether JSON writes it as it is: ids, tokens and owners are mostly such. A regular expression takes longer to ask. */
function isPlain(text: string): boolean {
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code < 0x20 || code > 0x7e || code === 0x22 || code === 0x5c) return false;
  }
  return true;
}

type Fields = Record<string, unknown>;

function readClaim(item: Fields, arrival: number, key: string): RecordClaim {
  const id = readText(item, "id", key);
  const weight = readNumber(item, "weight", key, 1);
  const limit = readNumber(item, "limit", key, 1) || UNLIMITED;
  // Such a claim could never be granted, and all behind it would wait for ever.
  if (weight < 1 || weight > limit) throw unreadable(key, `the weight of "${id}" is not from 1 to its limit`);
  const etcdLease = readText(item, "etcdLease", key, "");
  return {
    id,
    token: readText(item, "token", key, id),
    weight,
    limit,
    priority: readNumber(item, "priority", key, 0),
    ttlMs: readNumber(item, "ttlMs", key),
    owner: readText(item, "owner", key, ""),
    info: readText(item, "info", key, ""),
    application: readText(item, "application", key, ""),
    arrival,
    fence: 0n,
    agreedBy: "",
    acquiredAtMs: 0,
    // A claim with an etcd lease has no end of its own until its owner sets one.
    expiresAtMs: etcdLease === "" ? readNumber(item, "expiresAtMs", key) : Number.MAX_SAFE_INTEGER,
    promisedUntilMs: 0,
    etcdLease,
    expirySlot: 0,
    rankSlot: 0,
    idHash: 0,
    idNext: undefined,
  };
}

function parse(text: string, key: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw unreadable(key, "it is not JSON", cause);
  }
  return asFields(value, "the record", key);
}

function asFields(value: unknown, what: string, key: string): Fields {
  if (typeof value !== "object" || value === null) throw unreadable(key, `${what} is not an object`);
  return value as Fields;
}

function readList(fields: Fields, name: string, key: string): Fields[] {
  const list = fields[name];
  if (!Array.isArray(list)) throw unreadable(key, `"${name}" is not a list`);
  return list.map((item: unknown) => asFields(item, `an entry of "${name}"`, key));
}

function readText(fields: Fields, name: string, key: string, absent?: string): string {
  const value = fields[name] ?? absent;
  if (typeof value !== "string") throw unreadable(key, `"${name}" is not a text`);
  return value;
}

function readNumber(fields: Fields, name: string, key: string, absent?: number): number {
  const value = fields[name] ?? absent;
  // JSON can say 1e999, which is read as Infinity: a claim that would never expire. And a database that keeps times as whole numbers
  // would refuse, because of a fraction, all that goes out together with this key.
  if (!Number.isSafeInteger(value)) throw unreadable(key, `"${name}" is not a whole number`);
  return value as number;
}

function readFence(fields: Fields, name: string, key: string): bigint {
  const value = readText(fields, name, key);
  if (!/^\d{1,20}$/.test(value)) throw unreadable(key, `"${name}" is not a decimal number`);
  return BigInt(value);
}

function unreadable(key: string, why: string, cause?: unknown): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `The record of "${key}" cannot be read: ${why}. It was not changed. ` +
      "Upgrade Holdfast if a newer release wrote it, or delete the record once no process holds the lock.",
    { key, cause },
  );
}
