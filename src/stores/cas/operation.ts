/** What is asked of one key, and how all that waits for a key is applied to its record together. */
import {
  type AcquireAnswer,
  acquire,
  type ClaimRef,
  type ClaimRequest,
  decodeRecord,
  emptyRecord,
  encodeRecord,
  HoldfastError,
  isIdle,
  type LockRecord,
  type RecordClaim,
  type RenewAnswer,
  type RenewRef,
  release,
  renew,
  settle,
  type Turn,
} from "../../core/index.ts";
import type { Change, Wake } from "./driver.ts";
import type { Keeping } from "./keeping.ts";
import type { Known } from "./record-cache.ts";
import type { StampedBounds } from "./server-time.ts";

export type Asked =
  | { readonly verb: "acquire"; readonly request: ClaimRequest }
  | { readonly verb: "renew"; readonly ref: RenewRef }
  | { readonly verb: "release"; readonly ref: ClaimRef }
  /** Nothing in particular: drops what has expired, grants what can be granted, and so sees how things are. */
  | { readonly verb: "settle" };

export type Answer = AcquireAnswer | RenewAnswer | boolean | undefined;

/** One call that waits for its answer. */
export interface Operation {
  readonly asked: Asked;
  /** Since when it is tried, on this process's monotonic clock: known once an attempt has come to nothing. */
  sinceMs: number | undefined;
  readonly resolve: (answer: Answer) => void;
  readonly reject: (error: HoldfastError) => void;
}

/** What an operation came to, if the swap that it is part of comes about. */
export interface Outcome {
  readonly operation: Operation;
  readonly answer: Answer;
  /** What the claim hangs on, where the driver has keepers. */
  readonly keeper?: string | undefined;
  /** The record has no room for it. */
  readonly error?: HoldfastError;
}

/** Operations on one key, applied to what is known of it. */
export interface Combined {
  readonly change: Change;
  readonly outcomes: readonly Outcome[];
  /** What the key is afterwards, but for its version. */
  readonly record: LockRecord;
  readonly text: string | undefined;
}

export interface CombineOptions {
  readonly maxWaiters: number;
  readonly maxRecordBytes: number;
  /** For how long a record outlives its last claim. */
  readonly keepIdleMs: number;
  /** Present where claims hang on keepers. */
  readonly keeping: Keeping | undefined;
  /** Whether an owner is told of grants in this process. */
  isLocal(owner: string): boolean;
}

/** Applies operations to a known record, in the order asked. The record is used up. */
export function combine(
  key: string,
  known: Known,
  operations: readonly Operation[],
  bounds: StampedBounds,
  options: CombineOptions,
): Combined {
  const combined = applyAll(key, known, operations, bounds, options, Number.POSITIVE_INFINITY);
  if (isRoomFor(combined.change, known, options.maxRecordBytes)) return combined;
  // Once more from the beginning, and now every new claim is measured. It happens where a record is full.
  const again: Known = {
    ...known,
    record: known.text === undefined ? emptyRecord() : decodeRecord(known.text, key),
  };
  const room = options.maxRecordBytes - byteLength(known.text ?? "");
  return applyAll(key, again, operations, bounds, options, room);
}

/** Whoever has the most already may stay: only what makes a record larger is refused. */
function isRoomFor({ text }: Change, known: Known, maxBytes: number): boolean {
  if (text === undefined || text.length * 3 <= maxBytes) return true;
  const bytes = byteLength(text);
  return bytes <= maxBytes || bytes <= byteLength(known.text ?? "");
}

function applyAll(
  key: string,
  known: Known,
  operations: readonly Operation[],
  bounds: StampedBounds,
  options: CombineOptions,
  roomBytes: number,
): Combined {
  const { record } = known;
  const { lowMs, highMs, stamp } = bounds;
  const kept = options.keeping?.begin(key, record, highMs);
  const dropped = expiredClaims(record, lowMs);
  const granted: RecordClaim[] = [];
  const turn: Turn = { nowMs: highMs, expiredMs: lowMs, stamp, granted };
  const wakes: Wake[] = [];
  let leftBytes = roomBytes;
  const outcomes = operations.map((operation): Outcome => {
    const { asked } = operation;
    if (leftBytes !== Number.POSITIVE_INFINITY && isNew(record, asked)) {
      leftBytes -= claimBytes(asked.request);
      if (leftBytes < 0)
        return { operation, answer: undefined, error: recordFull(key, options.maxRecordBytes) };
    }
    const answer = apply(record, asked, options.maxWaiters, turn);
    const answeredId = toldByAnswer(asked, answer);
    for (const { id, owner, fence } of granted) {
      if (id !== answeredId && owner !== "" && !options.isLocal(owner)) wakes.push({ owner, id, fence });
    }
    granted.length = 0;
    return kept === undefined
      ? { operation, answer }
      : { operation, answer, keeper: kept.keep(asked, answer) };
  });
  const idle = isIdle(record);
  const isNothing = idle && record.fence === 0n && known.text === undefined;
  const text = isNothing ? undefined : encodeRecord(record);
  const change: Change = {
    key,
    expected: known.version,
    text: text === known.text ? undefined : text,
    idle,
    keepUntilMs: lastUseMs(record, highMs) + options.keepIdleMs,
    dropped,
    wakes,
  };
  const whole = kept === undefined ? change : { ...change, keepers: kept.assumed() };
  return { change: whole, outcomes, record, text };
}

function isNew(record: LockRecord, asked: Asked): asked is Extract<Asked, { verb: "acquire" }> {
  if (asked.verb !== "acquire") return false;
  const { id } = asked.request;
  return !record.held.some((claim) => claim.id === id) && !record.queue.some((claim) => claim.id === id);
}

/** What a claim adds to the text, or a little more. */
function claimBytes(request: ClaimRequest): number {
  return byteLength(JSON.stringify(request)) + 100;
}

function recordFull(key: string, maxBytes: number): HoldfastError {
  return new HoldfastError(
    "QUEUE_FULL",
    `"${key}" has as many claims as fit into its record of ${maxBytes} bytes. Try later, or use shorter infos.`,
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

const none: readonly string[] = [];

function expiredClaims(record: LockRecord, expiredMs: number): readonly string[] {
  if (record.held.length + record.waiting.length === 0) return none;
  const expired: string[] = [];
  for (const claim of record.held) if (claim.expiresAtMs <= expiredMs) expired.push(claim.id);
  for (const claim of record.waiting) if (claim.expiresAtMs <= expiredMs) expired.push(claim.id);
  return expired;
}

/** An answer whose time had already begun, by so much, when it was thought to begin. */
export function shortened(answer: Answer, byMs: number): Answer {
  if (byMs === 0 || typeof answer !== "object" || !("expiresInMs" in answer)) return answer;
  return { ...answer, expiresInMs: answer.expiresInMs - byMs };
}

/** When nobody can have anything of the record any more but its fence, and the time that the fence stands for. */
function lastUseMs(record: LockRecord, nowMs: number): number {
  let lastMs = Math.max(nowMs, Math.ceil(Number(record.fence) / 1_000));
  for (const claim of record.held) lastMs = Math.max(lastMs, claim.expiresAtMs);
  for (const claim of record.waiting) lastMs = Math.max(lastMs, claim.expiresAtMs);
  return lastMs;
}
