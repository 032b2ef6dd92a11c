/**
 * How a record is written down, by every store that keeps it as one value. docs/record-format.md describes it.
 *
 * It is JSON, so that a person with a database shell can read it; fields at their default are left out, since most
 * records are one plain mutex claim.
 */
import { HoldfastError } from "./errors.ts";
import { addHeld, addWaiting, byTurn, emptyRecord, type LockRecord, type RecordClaim } from "./record.ts";
import { UNLIMITED } from "./store.ts";

/** The version this release writes. It reads this one and every older one. */
export const RECORD_VERSION = 1;

interface StoredClaim {
  id: string;
  token?: string;
  weight?: number;
  /** 0 stands for no limit. */
  limit?: number;
  priority?: number;
  ttlMs: number;
  /** Absent where there is a keeper. */
  expiresAtMs?: number;
  keeper?: string;
  owner?: string;
  info?: string;
  application?: string;
  fence?: string;
  agreedBy?: string;
  acquiredAtMs?: number;
  promisedUntilMs?: number;
}

export function encodeRecord(record: LockRecord): string {
  return JSON.stringify({
    v: RECORD_VERSION,
    fence: record.fence.toString(),
    held: [...record.held].sort((a, b) => (a.fence < b.fence ? -1 : 1)).map(storedClaim),
    waiting: [...record.queue].sort(byTurn).map(storedClaim),
  });
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

function storedClaim(claim: RecordClaim): StoredClaim {
  const stored: StoredClaim = { id: claim.id, ttlMs: claim.ttlMs };
  if (claim.keeper === "") stored.expiresAtMs = claim.expiresAtMs;
  else stored.keeper = claim.keeper;
  if (claim.token !== claim.id) stored.token = claim.token;
  if (claim.weight !== 1) stored.weight = claim.weight;
  if (claim.limit !== 1) stored.limit = claim.limit === UNLIMITED ? 0 : claim.limit;
  if (claim.priority !== 0) stored.priority = claim.priority;
  if (claim.owner !== "") stored.owner = claim.owner;
  if (claim.info !== "") stored.info = claim.info;
  if (claim.application !== "") stored.application = claim.application;
  if (claim.fence !== 0n) {
    stored.fence = claim.fence.toString();
    stored.acquiredAtMs = claim.acquiredAtMs;
    if (claim.agreedBy !== "") stored.agreedBy = claim.agreedBy;
    if (claim.promisedUntilMs !== 0) {
      // Times mean nothing to others where there is a keeper: only that there is such a caller does.
      stored.promisedUntilMs = claim.keeper === "" ? claim.promisedUntilMs : 1;
    }
  }
  return stored;
}

type Fields = Record<string, unknown>;

function readClaim(item: Fields, arrival: number, key: string): RecordClaim {
  const id = readText(item, "id", key);
  const weight = readNumber(item, "weight", key, 1);
  const limit = readNumber(item, "limit", key, 1) || UNLIMITED;
  // Such a claim could never be granted, and all behind it would wait for ever.
  if (weight < 1 || weight > limit) throw unreadable(key, `the weight of "${id}" is not from 1 to its limit`);
  const keeper = readText(item, "keeper", key, "");
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
    // Until somebody says when it ends, a claim with a keeper does not.
    expiresAtMs: keeper === "" ? readNumber(item, "expiresAtMs", key) : Number.MAX_SAFE_INTEGER,
    promisedUntilMs: 0,
    keeper,
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
  // JSON can say 1e999, which is read as Infinity: a claim that would never expire.
  if (!Number.isFinite(value)) throw unreadable(key, `"${name}" is not a finite number`);
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
    `The record of "${key}" cannot be read: ${why}. It was left as it is; ` +
      "upgrade Holdfast if a newer release wrote it, or remove the record once nobody holds it.",
    { key, cause },
  );
}
