/**
 * The bounds of everything that a caller can send, and the checks that hold them. Bad values are rejected with an
 * error that names the field, the value and the range; nothing is corrected silently.
 */
import { HoldfastError } from "./errors.ts";
import { NewRequest } from "./new-request.ts";
import { type ClaimRequest, type LookQuery, type RenewRef, type Store, UNLIMITED } from "./store.ts";

export const bounds = {
  /** Bytes of UTF-8. */
  keyBytes: 512,
  idBytes: 128,
  infoBytes: 1_024,
  applicationBytes: 256,
  ownerBytes: 256,
  /** Below this, a garbage collection or a slow round trip would cost the lease. */
  minTtlMs: 10,
  maxTtlMs: 86_400_000,
  maxPriority: 65_535,
  /** The most permits a semaphore may have. */
  maxPermits: 1_000_000_000,
  /** Waiters per key, unless a store is told otherwise. */
  defaultMaxWaiters: 10_000,
  /** Keys on one page of a listing. */
  maxPageKeys: 1_000,
  /** Where a page of a listing ended: in most stores a key, in some with a few numbers before it. */
  cursorBytes: 1_024,
  /** Claims shown of one key. */
  maxShownClaims: 10_000,
} as const;

/** A key: 1 to 512 bytes of UTF-8 without control characters. */
export function checkKey(key: string, name = "key"): string {
  return checkText(name, key, 1, bounds.keyBytes);
}

/** A prefix of keys, possibly empty. */
export function checkPrefix(prefix: string, name = "prefix"): string {
  return checkText(name, prefix, 0, bounds.keyBytes);
}

export function checkId(id: string, name = "id"): string {
  return checkText(name, id, 1, bounds.idBytes);
}

export function checkToken(token: string): string {
  return checkText("token", token, 1, bounds.idBytes);
}

export function checkTtl(ttlMs: number, name = "ttlMs"): number {
  return checkInteger(name, ttlMs, bounds.minTtlMs, bounds.maxTtlMs);
}

export function checkPriority(priority: number): number {
  return checkInteger("priority", priority, 0, bounds.maxPriority);
}

export function checkInfo(info: string, name = "info"): string {
  return checkText(name, info, 0, bounds.infoBytes);
}

export function checkApplication(application: string): string {
  return checkText("application", application, 0, bounds.applicationBytes);
}

export function checkOwner(owner: string): string {
  return checkText("owner", owner, 0, bounds.ownerBytes);
}

/** All of a request, for a store that cannot know who made it. */
export function checkRequest(request: ClaimRequest): void {
  if (request instanceof NewRequest) return;
  checkKey(request.key);
  checkId(request.id);
  checkToken(request.token);
  if (request.limit !== UNLIMITED) checkInteger("limit", request.limit, 1, bounds.maxPermits);
  checkInteger("weight", request.weight, 1, Math.min(request.limit, bounds.maxPermits));
  checkPriority(request.priority);
  checkTtl(request.ttlMs);
  checkBoolean("wait", request.wait);
  checkOwner(request.owner);
  checkInfo(request.info);
  checkApplication(request.application);
}

/** A reference to a claim, with or without a ttl to ask for. */
export function checkRenewRef(ref: RenewRef): void {
  if (ref instanceof NewRequest) return;
  checkKey(ref.key);
  checkId(ref.id);
  if (ref.token !== undefined) checkToken(ref.token);
  if (ref.ttlMs !== undefined) checkTtl(ref.ttlMs);
}

export function checkQuery(query: LookQuery): void {
  checkInteger("maxClaims", query.maxClaims, 0, bounds.maxShownClaims);
  if ("key" in query) {
    checkKey(query.key);
  } else {
    checkPrefix(query.prefix);
    checkInteger("limit", query.limit, 1, bounds.maxPageKeys);
    if (query.cursor !== undefined) checkText("cursor", query.cursor, 1, bounds.cursorBytes);
  }
}

/** A whole number within a range. */
export function checkInteger(name: string, value: number, min: number, max: number): number {
  if (Number.isInteger(value) && value >= min && value <= max) return value;
  throw invalid(`${name} must be a whole number from ${min} to ${max}, not ${show(value)}.`);
}

/** A number of milliseconds, 0 or more; `Infinity` stands for without end. */
export function checkDuration(name: string, value: number): number {
  if (typeof value === "number" && value >= 0) return value;
  throw invalid(`${name} must be 0 or more milliseconds (Infinity for no end), not ${show(value)}.`);
}

/** By how much, unless it is told otherwise, the rates of two clocks may differ. */
export const DEFAULT_CLOCK_DRIFT = 0.001;

export function checkFraction(name: string, value: number, max: number): number {
  if (typeof value === "number" && value >= 0 && value <= max) return value;
  throw invalid(`${name} must be a fraction from 0 to ${max}, not ${show(value)}.`);
}

/** One of a few words. */
export function checkChoice<T extends string>(name: string, value: T, choices: readonly T[]): T {
  if (choices.includes(value)) return value;
  throw invalid(`${name} must be one of ${choices.map(show).join(", ")}, not ${show(value)}.`);
}

export function checkBoolean(name: string, value: boolean): boolean {
  if (typeof value === "boolean") return value;
  throw invalid(`${name} must be true or false, not ${show(value)}.`);
}

/**
 * Refuses what is no option, so that a misspelt one is told. Values are not shown: they were not meant for this, and one may be
 * a password.
 */
export function checkOptionNames<T extends object>(
  of: string,
  options: T,
  known: Readonly<Record<keyof T, true>>,
): void {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    const names = Object.keys(known).join(", ");
    const given = Array.isArray(options) ? "a list" : show(options);
    throw invalid(`The options of ${of} must be an object with ${names}, not ${given}.`);
  }
  for (const name of Object.keys(options)) {
    if (Object.hasOwn(known, name)) continue;
    const names = Object.keys(known).join(", ");
    throw invalid(`${name} is not an option of ${of}. Remove it, or write one of ${names}.`);
  }
}

const storeMethods = ["acquire", "renew", "release", "look", "onGrant", "close"] as const;

/** Refuses what is no store. It is not shown: a URL may have a password. */
export function checkStore(store: Store): Store {
  const found = Object(store) as Record<string, unknown>;
  const missing = storeMethods.find((name) => typeof found[name] !== "function");
  if (missing === undefined) return store;
  throw invalid(
    typeof store === "string"
      ? "store must be a Store, not a string. For a URL use createLocks(await openStore(url)), with openStore of holdfast/open."
      : `store must be a Store, but it has no ${missing}. Make one from your client, as in createLocks(redisStore(client)).`,
  );
}

export function invalid(message: string, key?: string): HoldfastError {
  return new HoldfastError("INVALID_ARGUMENT", message, { key });
}

function checkText(name: string, value: string, minBytes: number, maxBytes: number): string {
  checkLength(name, value, minBytes, maxBytes);
  if (!isPlain(value) && unprintable.test(value)) {
    throw invalid(`${name} must be well-formed text without control characters, not ${show(value)}.`);
  }
  return value;
}

function checkLength(name: string, value: string, minBytes: number, maxBytes: number): void {
  if (typeof value !== "string") throw invalid(`${name} must be a string, not ${show(value)}.`);
  // A UTF-16 unit is at most three bytes of UTF-8, so short texts need no counting.
  const isLong = value.length * 3 > maxBytes && Buffer.byteLength(value) > maxBytes;
  if (!isLong && value.length >= minBytes) return;
  throw invalid(
    value === ""
      ? `${name} must be ${minBytes} to ${maxBytes} bytes of UTF-8, but it is empty.`
      : `${name} must be ${minBytes} to ${maxBytes} bytes of UTF-8, not ${Buffer.byteLength(value)} (${show(value)}).`,
  );
}

/** Whether it is printable ASCII: the common case, at a fraction of the cost. */
function isPlain(value: string): boolean {
  for (let index = 0; index < value.length; index++) {
    const code = value.charCodeAt(index);
    if (code < 0x20 || code > 0x7e) return false;
  }
  return true;
}

/** Control characters, and lone halves of a surrogate pair, which UTF-8 cannot carry. */
const unprintable = /[\p{Cc}\p{Cs}]/u;

/** A value as a message shows it: whole when short, its beginning otherwise. */
function show(value: unknown): string {
  if (typeof value !== "string") {
    return typeof value === "object" && value !== null ? "an object" : String(value);
  }
  return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
}
