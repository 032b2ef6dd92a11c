/** What is asked of one key, and how all that waits for a key is applied to its record together. */

import {
  acquire,
  decodeRecord,
  emptyRecord,
  encodeRecord,
  findClaim,
  isIdle,
  type LockRecord,
  type RecordClaim,
  release,
  renew,
  settle,
  type Turn,
} from "../../record/index.ts";
import {
  type AcquireAnswer,
  type ClaimRef,
  type ClaimRequest,
  HoldfastError,
  type RenewAnswer,
  type RenewRef,
} from "../../store/index.ts";
import { CachedRecord } from "./cached-record.ts";
import type { Change, Version, Wake } from "./driver.ts";
import type { Lifetimes } from "./lifetimes.ts";
import type { StampedBounds } from "./server-time.ts";

export type Asked =
  | { readonly verb: "acquire"; readonly request: ClaimRequest }
  | { readonly verb: "renew"; readonly ref: RenewRef }
  | { readonly verb: "release"; readonly ref: ClaimRef }
  /** Nothing in particular: drops what has expired, grants what can be granted, and so sees how things are. */
  | { readonly verb: "settle" };

export type Answer = AcquireAnswer | RenewAnswer | boolean | undefined;

/**
 * One call that waits for its answer.
 *
 * This and what a change takes are classes, because V8 allocates a plain literal among the old objects once most of its kind live
 * long: record/new-record.ts.
 */
export class Operation {
  readonly asked: Asked;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: HoldfastError) => void;
  /** Since when it is tried, on this process's monotonic clock: known once an attempt has come to nothing. */
  sinceMs: number | undefined = undefined;
  /** What it came to, if the swap that it is part of comes about. */
  answer: Answer = undefined;
  /** The etcd lease that the claim hangs on. */
  etcdLease: string | undefined = undefined;
  /** The record has no room for it. */
  error: HoldfastError | undefined = undefined;
  /** Whether a refusal was once left to be decided again. */
  wasLeft = false;

  constructor(asked: Asked, resolve: (answer: Answer) => void, reject: (error: HoldfastError) => void) {
    this.asked = asked;
    this.resolve = resolve;
    this.reject = reject;
  }
}

/** Operations on one key, applied to what is known of it. Each operation has its answer. */
export class Combined {
  readonly change: Change;
  /** What the key is afterwards, but for its version. */
  readonly record: LockRecord;
  readonly text: string | undefined;
  /** Those of the operations that are decided again after this: there is more to be cleared away, or to be looked at, than one change can. */
  readonly left: readonly Operation[];

  constructor(change: Change, record: LockRecord, text: string | undefined, left: readonly Operation[]) {
    this.change = change;
    this.record = record;
    this.text = text;
    this.left = left;
  }
}

class NewChange implements Change {
  readonly key: string;
  readonly expected: Version | undefined;
  readonly text: string | undefined;
  readonly idle: boolean;
  readonly keepUntilMs: number;
  readonly dropped: readonly string[];
  readonly wakes: readonly Wake[];

  constructor(
    key: string,
    known: CachedRecord,
    text: string | undefined,
    idle: boolean,
    keepUntilMs: number,
    dropped: readonly string[],
    wakes: readonly Wake[],
  ) {
    this.key = key;
    this.expected = known.version;
    this.text = text === known.text ? undefined : text;
    this.idle = idle;
    this.keepUntilMs = keepUntilMs;
    this.dropped = dropped;
    this.wakes = wakes;
  }
}

export interface CombineOptions {
  readonly maxWaiters: number;
  readonly maxRecordBytes: number;
  /** For how long a record outlives its last claim. */
  readonly keepIdleMs: number;
  readonly lifetimes: Lifetimes | undefined;
  /** Whether an owner is told of grants in this process. */
  isLocal(owner: string): boolean;
}

/** The circumstances of a flight, which all its changes share. */
export interface RequestTurn extends Turn {
  readonly granted: Grants;
}

export function turnOf({ lowMs, highMs, stamp }: StampedBounds): RequestTurn {
  return { nowMs: highMs, expiredMs: lowMs, stamp, granted: new Grants() };
}

/** Those who were granted the key by one operation. A list that is emptied each time would each time make room anew. */
class Grants {
  readonly #claims: RecordClaim[] = [];
  #count = 0;

  push(claim: RecordClaim): void {
    this.#claims[this.#count++] = claim;
  }

  /** Wakes all of them but the one whose caller is told by its answer, and begins anew. */
  wake(answeredId: string | undefined, wakes: Wake[], isLocal: (owner: string) => boolean): Wake[] {
    let all = wakes;
    for (let nth = 0; nth < this.#count; nth++) {
      const { id, owner, fence } = this.#claims[nth] as RecordClaim;
      if (id === answeredId || owner === "" || isLocal(owner)) continue;
      if (all === nobody) all = [];
      all.push({ owner, id, fence });
    }
    this.#count = 0;
    return all;
  }
}

/** Applies operations to a known record, in the order asked. The record is used up. */
export function combine(
  key: string,
  known: CachedRecord,
  operations: readonly Operation[],
  turn: RequestTurn,
  options: CombineOptions,
): Combined {
  const combined = applyAll(key, known, operations, turn, options, Number.POSITIVE_INFINITY);
  if (isRoomFor(combined.change, known, options.maxRecordBytes)) return combined;
  // Once more from the beginning, and now every new claim is measured. It happens where a record is full.
  const record = known.text === undefined ? emptyRecord() : decodeRecord(known.text, key);
  const again = new CachedRecord(known.version, known.text, record);
  const room = options.maxRecordBytes - byteLength(known.text ?? "");
  return applyAll(key, again, operations, turn, options, room);
}

/** Whoever has the most already may stay: only what makes a record larger is refused. */
function isRoomFor({ text }: Change, known: CachedRecord, maxBytes: number): boolean {
  if (text === undefined || text.length * 3 <= maxBytes) return true;
  const bytes = byteLength(text);
  return bytes <= maxBytes || bytes <= byteLength(known.text ?? "");
}

function applyAll(
  key: string,
  known: CachedRecord,
  operations: readonly Operation[],
  turn: RequestTurn,
  options: CombineOptions,
  roomBytes: number,
): Combined {
  const { record } = known;
  const kept = options.lifetimes?.begin(key, record, turn.nowMs);
  const isUnfinished = kept?.isFull === true;
  const dropped = expiredClaims(record, turn.expiredMs);
  let wakes = nobody;
  let leftBytes = roomBytes;
  if (isUnfinished) {
    settle(record, turn);
    wakes = turn.granted.wake(undefined, wakes, options.isLocal);
    for (const operation of operations) operation.answer = undefined;
  }
  for (const operation of isUnfinished ? [] : operations) {
    const { asked } = operation;
    operation.error = undefined;
    if (leftBytes !== Number.POSITIVE_INFINITY && asked.verb === "acquire") {
      const bytes = addedBytes(record, asked.request);
      if (bytes > leftBytes) {
        operation.error = recordFull(key, options.maxRecordBytes);
        continue;
      }
      leftBytes -= bytes;
    }
    const answer = apply(record, asked, options.maxWaiters, turn);
    wakes = turn.granted.wake(toldByAnswer(asked, answer), wakes, options.isLocal);
    operation.answer = answer;
    operation.etcdLease = kept?.keep(asked, answer);
  }
  const idle = isIdle(record);
  const isNothing = idle && record.fence === 0n && known.text === undefined;
  const text = isNothing ? undefined : encodeRecord(record);
  const keepUntilMs = lastUseMs(record, turn) + options.keepIdleMs;
  const change = new NewChange(key, known, text, idle, keepUntilMs, dropped, wakes);
  if (kept === undefined) return new Combined(change, record, text, none);
  const isAsked = operations.some(({ asked }) => asked.verb === "acquire");
  const leases = kept.assumed({ isWriting: change.text !== undefined, isAsked });
  const left = isUnfinished ? operations : kept.isGuessing ? operations.filter(isGuessedRefusal) : none;
  return new Combined({ ...change, leases }, record, text, left);
}

/**
 * (1) Of fourteen holders one has died, which a try notices, and another one, which nobody has. (2) The try drops the claim of the first, and
 * as it writes, only eight of the others are compared. (3) It would be refused for the dead. So it is decided once more, by itself where
 * possible: what writes nothing can look at all of them.
 */
function isGuessedRefusal({ asked, answer, wasLeft }: Operation): boolean {
  return !wasLeft && asked.verb === "acquire" && (answer as AcquireAnswer | undefined)?.state === "refused";
}

/** What a request adds to the text, or a little more. Asking again may say more of a claim than was said before. */
function addedBytes(record: LockRecord, request: ClaimRequest): number {
  const claim = findClaim(record, request.id);
  if (claim === undefined) return byteLength(JSON.stringify(request)) + 100;
  return Math.max(0, saidBytes(request) - saidBytes(claim));
}

function saidBytes({ token, owner, info, application }: ClaimRequest | RecordClaim): number {
  return byteLength(JSON.stringify([token, owner, info, application]));
}

function recordFull(key: string, maxBytes: number): HoldfastError {
  return new HoldfastError(
    "QUEUE_FULL",
    `The record of "${key}" has reached ${maxBytes} bytes, so it takes no more claims. Try again later, or use a shorter info.`,
    { key },
  );
}

function byteLength(text: string): number {
  return Buffer.byteLength(text);
}

function apply(record: LockRecord, asked: Asked, maxWaiters: number, turn: Turn): Answer {
  switch (asked.verb) {
    case "acquire":
      return acquire(record, asked.request, maxWaiters, turn);
    case "renew":
      return renew(record, asked.ref, turn);
    case "release":
      return release(record, asked.ref, turn);
    case "settle":
      settle(record, turn);
      return undefined;
  }
}

/** The claim of whose grant the caller learns from the answer, if that is what the answer says. */
function toldByAnswer(asked: Asked, answer: Answer): string | undefined {
  if (typeof answer !== "object" || answer.state !== "held") return undefined;
  if (asked.verb === "acquire") return asked.request.id;
  return asked.verb === "renew" ? asked.ref.id : undefined;
}

/** Lists that are shared by all changes which have nothing to list. */
const none: readonly never[] = [];
const nobody: Wake[] = [];

function expiredClaims({ held, waiting }: LockRecord, expiredMs: number): readonly string[] {
  const isOver = (claim: RecordClaim | undefined) => claim !== undefined && claim.expiresAtMs <= expiredMs;
  // The next to expire come first.
  if (!isOver(held[0]) && !isOver(waiting[0])) return none;
  return [...held.filter(isOver), ...waiting.filter(isOver)].map(({ id }) => id);
}

/** An answer whose time had already begun, by so much, when it was thought to begin. */
export function shortened(answer: Answer, byMs: number): Answer {
  if (byMs === 0 || typeof answer !== "object" || !("expiresInMs" in answer)) return answer;
  return { ...answer, expiresInMs: answer.expiresInMs - byMs };
}

/** When nobody can have anything of the record any more but its fence, and the time that the fence stands for. */
function lastUseMs(record: LockRecord, turn: Turn): number {
  const lastMs = Math.max(turn.nowMs, lastEndMs(record));
  // A fence up to the stamp stands for a time that has come: what is left is slow to tell.
  return record.fence > turn.stamp ? Math.max(lastMs, Math.ceil(Number(record.fence) / 1_000)) : lastMs;
}

function lastEndMs(record: LockRecord): number {
  let lastMs = 0;
  for (const claim of record.held) lastMs = Math.max(lastMs, claim.expiresAtMs);
  for (const claim of record.waiting) lastMs = Math.max(lastMs, claim.expiresAtMs);
  return lastMs;
}
