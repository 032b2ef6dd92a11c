/**
 * The record machine: all that a lock is, as a pure, synchronous state machine over one key's record.
 *
 * A record is who holds the key and who waits for it. Stores apply these functions atomically and supply the time.
 * Every function first drops expired claims and grants what can be granted, so no timer watches a record. All of
 * them cost O(log n) in holders and waiters. `view.ts` shows a record, and `format.ts` encodes it.
 *
 * The rules, as docs/guarantees.md tells them:
 *
 * 1. A claim can be held when the weight of all held claims and its own is within its limit and all of theirs.
 * 2. Only the head of the queue is ever granted: by priority, then by arrival. So nobody is starved or overtaken.
 * 3. A claim lives until its last heartbeat plus its ttl, waiting or held alike. A heartbeat never shortens a life,
 *    and being granted does not prolong one: a dead waiter must not hold for a whole ttl.
 * 4. Asking again with the same id is the same claim. Renew and release compare the token of whoever asked last.
 *    A lease that was taken over is not free before its former holder's time is up.
 * 5. A grant's fence is above every earlier one of the record, and at least the store's stamp.
 */

import type {
  AcquireAnswer,
  ClaimRef,
  ClaimRequest,
  HeldAnswer,
  RefusalReason,
  RefusedAnswer,
  RenewAnswer,
  RenewRef,
  WaitingAnswer,
} from "../store/index.ts";
import { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "./heap.ts";
import { IdIndex } from "./id-index.ts";
import { listOf, newClaim } from "./new-record.ts";

export { emptyRecord } from "./new-record.ts";

/** A claim inside a record. `fence` is 0 while it waits. */
export interface RecordClaim {
  readonly id: string;
  token: string;
  readonly weight: number;
  readonly limit: number;
  readonly priority: number;
  ttlMs: number;
  owner: string;
  info: string;
  application: string;
  /** Counts up within the record, and orders claims of equal priority. */
  readonly arrival: number;
  fence: bigint;
  acquiredAtMs: number;
  expiresAtMs: number;
  /** Who proposed the present fence to several stores; empty for the store's own. `record-agreement.ts` has the rules. */
  agreedBy: string;
  /** Until when a former caller may count on the lease, from whom another took it over. */
  promisedUntilMs: number;
  /** What keeps it alive where the store has no clock, and says with `setEnd` when it ends; empty where it has one. */
  etcdLease: string;
  /** Where it stands in `held` or `waiting`. */
  expirySlot: number;
  /** Where it stands in `limits` or `queue`. */
  rankSlot: number;
  /** Where it stands in `byId`. */
  idHash: number;
  idNext: RecordClaim | undefined;
}

/**
 * One key's state. Every claim is in two of the four heaps: held and limits, or waiting and queue. Both are one list
 * for a claim that is alone in its state, as most are.
 */
export interface LockRecord {
  /** The fence of the latest grant. */
  fence: bigint;
  heldWeight: number;
  arrivals: number;
  /** Held claims, the next to expire first. */
  held: RecordClaim[];
  /** Held claims, the tightest limit first. */
  limits: RecordClaim[];
  /** Waiting claims, the next to expire first. */
  waiting: RecordClaim[];
  /** Waiting claims, the next to be served first. */
  queue: RecordClaim[];
  /** Claims by id, once there have been more than a look through the heaps is good for. */
  byId: IdIndex<RecordClaim> | undefined;
}

/** The circumstances of one operation, and what it caused besides its answer. */
export interface Turn {
  /**
   * The store's time; where that is known only within bounds, the latest that it can be. Lives are counted from it, so
   * that nobody's ends before its owner has counted to the end.
   */
  readonly nowMs: number;
  /**
   * What ends at this time or before it has expired. The store's time as well; where that is known only within bounds,
   * the earliest that it can be, so that nobody is dropped early.
   */
  readonly expiredMs: number;
  /** A number of the store's that grows with time, and keeps fences growing where the record itself was lost. */
  readonly stamp: bigint;
  /** Collects the claims that were granted, the asking one included, for their owners to be told afterwards. */
  readonly granted: { push(claim: RecordClaim): unknown };
}

/** Whether the record has no claim left, so that its key need not be kept. */
export function isIdle(record: LockRecord): boolean {
  return record.held.length === 0 && record.queue.length === 0;
}

/** Asks for a claim: held at once where the order allows, else queued (`wait`) or refused without a trace. */
export function acquire(
  record: LockRecord,
  request: ClaimRequest,
  maxWaiters: number,
  turn: Turn,
): AcquireAnswer {
  settle(record, turn);
  const known = findClaim(record, request.id);
  if (known !== undefined) return acquireAgain(record, known, request, turn);

  const claim = newClaim(request, record.arrivals++, turn.nowMs + request.ttlMs);
  if (record.queue.length === 0 && fits(record, claim)) {
    // What most claims come to. Joining the queue only to leave it would cost four times as much.
    stampGrant(record, claim, turn);
    addHeld(record, claim);
    turn.granted.push(claim);
    return heldAnswer(claim, turn);
  }
  addWaiting(record, claim);
  grantHead(record, turn);
  if (claim.fence !== 0n) return heldAnswer(claim, turn);
  // The queue was settled before this claim joined it, so taking the claim out again cannot let anybody else in.
  if (!request.wait) return withdraw(record, claim, "contended");
  if (record.queue.length > maxWaiters) return withdraw(record, claim, "queue-full");
  return waitingAnswer(record, claim, turn);
}

function acquireAgain(
  record: LockRecord,
  claim: RecordClaim,
  request: ClaimRequest,
  turn: Turn,
): AcquireAnswer {
  if (
    claim.weight !== request.weight ||
    claim.limit !== request.limit ||
    claim.priority !== request.priority
  ) {
    return refusals["id-reused"];
  }
  // Somebody else's try leaves a waiter alone: it may be a late copy of one that was refused before this one came.
  if (claim.fence === 0n && !request.wait && claim.token !== request.token) return refusals.contended;
  if (claim.token !== request.token) {
    claim.token = request.token;
    if (claim.fence !== 0n) {
      // Another caller takes the lease over. A new fence lets storage reject what the former one still writes.
      stampGrant(record, claim, turn);
      claim.promisedUntilMs = claim.expiresAtMs;
    }
  }
  claim.owner = request.owner;
  claim.info = request.info;
  claim.application = request.application;
  claim.ttlMs = request.ttlMs;
  prolong(record, claim, turn.nowMs + request.ttlMs);
  if (claim.fence !== 0n) return heldAnswer(claim, turn);
  if (request.wait) return waitingAnswer(record, claim, turn);
  const refused = withdraw(record, claim, "contended");
  grantHead(record, turn);
  return refused;
}

/** A heartbeat: the claim, waiting or held, lives for its ttl (or the ttl asked for) from now on, if not longer. */
export function renew(record: LockRecord, ref: RenewRef, turn: Turn): RenewAnswer {
  settle(record, turn);
  const claim = findClaim(record, ref.id);
  if (claim === undefined) return gone;
  if (!isOwn(claim, ref)) return { state: "gone", takenOverBy: claim.owner };
  prolong(record, claim, turn.nowMs + (ref.ttlMs ?? claim.ttlMs));
  return claim.fence !== 0n ? heldAnswer(claim, turn) : waitingAnswer(record, claim, turn);
}

/** Removes the claim, waiting or held, and says whether it was there. */
export function release(record: LockRecord, ref: ClaimRef, turn: Turn): boolean {
  settle(record, turn);
  const claim = findClaim(record, ref.id);
  if (claim === undefined || !isOwn(claim, ref)) return false;
  if (ref.token !== undefined && claim.promisedUntilMs > turn.expiredMs) {
    forsake(record, claim);
  } else {
    removeClaim(record, claim);
    grantHead(record, turn);
  }
  return true;
}

/** Says when a claim ends, sooner or later than it was thought to. */
export function setEnd(record: LockRecord, claim: RecordClaim, expiresAtMs: number): void {
  if (expiresAtMs === claim.expiresAtMs) return;
  claim.expiresAtMs = expiresAtMs;
  heapUpdate(claim.fence === 0n ? record.waiting : record.held, claim, byExpiry);
}

/** Drops what has expired and grants what can be granted. */
export function settle(record: LockRecord, turn: Turn): void {
  dropExpired(record, record.held, turn.expiredMs);
  dropExpired(record, record.waiting, turn.expiredMs);
  grantHead(record, turn);
}

// Answers.

const gone: RenewAnswer = { state: "gone" };
const refusals: Record<RefusalReason, RefusedAnswer> = {
  contended: { state: "refused", reason: "contended" },
  "queue-full": { state: "refused", reason: "queue-full" },
  "id-reused": { state: "refused", reason: "id-reused" },
};

function heldAnswer(claim: RecordClaim, turn: Turn): HeldAnswer {
  return {
    state: "held",
    fence: claim.fence,
    acquiredAtMs: claim.acquiredAtMs,
    expiresInMs: claim.expiresAtMs - turn.nowMs,
  };
}

/**
 * The head asks again when the first holder could have expired. Those behind leave that to the head while it lives,
 * so that a crash among thousands of waiters is noticed by one of them and not by all at once.
 */
function waitingAnswer(record: LockRecord, claim: RecordClaim, turn: Turn): WaitingAnswer {
  const head = record.queue[0] as RecordClaim;
  const firstHeld = record.held[0] as RecordClaim;
  const retryAtMs =
    claim === head ? firstHeld.expiresAtMs : Math.max(firstHeld.expiresAtMs, head.expiresAtMs);
  return {
    state: "waiting",
    expiresInMs: claim.expiresAtMs - turn.nowMs,
    retryInMs: retryAtMs - turn.expiredMs,
    fence: record.fence,
  };
}

// Claims in and out of the record.

/** A token that nobody has. */
const NOBODY = "";

/** How many claims are searched one by one before an index pays for its memory. */
const SEARCHED_CLAIMS = 8;

/** The claim of this id, waiting or held. */
export function findClaim(record: LockRecord, id: string): RecordClaim | undefined {
  if (record.byId !== undefined) return record.byId.find(id);
  for (const claim of record.held) if (claim.id === id) return claim;
  for (const claim of record.queue) if (claim.id === id) return claim;
  return undefined;
}

/** @internal */
export function isOwn(claim: RecordClaim, ref: ClaimRef): boolean {
  return ref.token === undefined || ref.token === claim.token;
}

/** @internal Adds a claim at its place: for the machine itself and for reading a stored record back. */
export function addWaiting(record: LockRecord, claim: RecordClaim): void {
  indexClaim(record, claim);
  if (record.queue.length === 0) {
    record.waiting = listOf(claim);
    record.queue = record.waiting;
  } else {
    if (record.queue === record.waiting) record.queue = record.waiting.slice();
    heapInsert(record.waiting, claim, byExpiry);
    heapInsert(record.queue, claim, byTurnOrder);
  }
}

/** @internal */
export function addHeld(record: LockRecord, claim: RecordClaim): void {
  indexClaim(record, claim);
  hold(record, claim);
}

function hold(record: LockRecord, claim: RecordClaim): void {
  record.heldWeight += claim.weight;
  if (record.held.length === 0) {
    record.held = listOf(claim, record.held);
    record.limits = record.held;
  } else {
    if (record.limits === record.held) record.limits = record.held.slice();
    heapInsert(record.held, claim, byExpiry);
    heapInsert(record.limits, claim, byLimit);
  }
}

function indexClaim(record: LockRecord, claim: RecordClaim): void {
  if (record.byId === undefined && record.held.length + record.queue.length >= SEARCHED_CLAIMS) {
    record.byId = new IdIndex();
    for (const other of record.held) record.byId.add(other);
    for (const other of record.queue) record.byId.add(other);
  }
  record.byId?.add(claim);
}

function removeClaim(record: LockRecord, claim: RecordClaim): void {
  record.byId?.remove(claim);
  if (claim.fence === 0n) {
    leaveQueue(record, claim);
  } else {
    record.heldWeight -= claim.weight;
    heapRemove(record.held, claim, byExpiry);
    if (record.limits !== record.held) heapRemove(record.limits, claim, byLimit);
  }
}

function leaveQueue(record: LockRecord, claim: RecordClaim): void {
  heapRemove(record.waiting, claim, byExpiry);
  if (record.queue !== record.waiting) heapRemove(record.queue, claim, byTurnOrder);
}

function withdraw(record: LockRecord, claim: RecordClaim, reason: RefusalReason): RefusedAnswer {
  removeClaim(record, claim);
  return refusals[reason];
}

function prolong(record: LockRecord, claim: RecordClaim, expiresAtMs: number): void {
  // Never shortened: a client may be counting on an answer that promised more.
  if (expiresAtMs > claim.expiresAtMs) setEnd(record, claim, expiresAtMs);
}

/**
 * Leaves a lease that was taken over from somebody as nobody's, until that one cannot believe in it any more. Without
 * this, an acquire that was given up, came late, took over its own retry and was then released would have freed the
 * key while the retry still believed to hold it.
 */
function forsake(record: LockRecord, claim: RecordClaim): void {
  claim.token = NOBODY;
  setEnd(record, claim, claim.promisedUntilMs);
}

function dropExpired(record: LockRecord, heap: RecordClaim[], expiredMs: number): void {
  for (let next = heap[0]; next !== undefined && next.expiresAtMs <= expiredMs; next = heap[0]) {
    removeClaim(record, next);
  }
}

// Grants.

function grantHead(record: LockRecord, turn: Turn): void {
  for (let head = record.queue[0]; head !== undefined && fits(record, head); head = record.queue[0]) {
    leaveQueue(record, head);
    stampGrant(record, head, turn);
    hold(record, head);
    turn.granted.push(head);
  }
}

function fits(record: LockRecord, claim: RecordClaim): boolean {
  const tightest = record.limits[0];
  const limit = tightest === undefined ? claim.limit : Math.min(claim.limit, tightest.limit);
  return record.heldWeight + claim.weight <= limit;
}

function stampGrant(record: LockRecord, claim: RecordClaim, turn: Turn): void {
  const next = record.fence + 1n;
  // biome-ignore lint/complexity/useMathMinMax: these are bigints.
  record.fence = next > turn.stamp ? next : turn.stamp;
  claim.fence = record.fence;
  claim.agreedBy = "";
  claim.acquiredAtMs = turn.nowMs;
}

// Orders.

/** The order of service. @internal */
export function byTurn(a: RecordClaim, b: RecordClaim): number {
  return b.priority - a.priority || a.arrival - b.arrival;
}

const rank = {
  slotOf: (claim: RecordClaim) => claim.rankSlot,
  setSlot: (claim: RecordClaim, slot: number) => {
    claim.rankSlot = slot;
  },
};

const byTurnOrder: HeapOrder<RecordClaim> = { ...rank, before: (a, b) => byTurn(a, b) < 0 };

const byLimit: HeapOrder<RecordClaim> = { ...rank, before: (a, b) => a.limit < b.limit };

const byExpiry: HeapOrder<RecordClaim> = {
  before: (a, b) => a.expiresAtMs < b.expiresAtMs,
  slotOf: (claim) => claim.expirySlot,
  setSlot: (claim, slot) => {
    claim.expirySlot = slot;
  },
};
