/** The steps of a claim that several events share. claim.ts explains the machine, claim-events.ts has the events. */

import { noLaterThan, noSoonerThan } from "../platform/index.ts";
import {
  answerTimeoutMs,
  type HeldAnswer,
  type HoldfastError,
  type LossReason,
  provenUntil,
  type RenewRef,
  retryAt,
  retryPauseMs,
  type WaitingAnswer,
} from "../store/index.ts";
import {
  type Asking,
  become,
  type Claim,
  type Ended,
  type Held,
  type Leaving,
  type Live,
  type Loss,
  MIN_ATTEMPTS,
  type Waiting,
  wantsHeartbeats,
  wasGranted,
} from "./claim.ts";
import { notHeldError, takenOverError, tooLateError } from "./claim-errors.ts";
import type { CancelReason } from "./events.ts";

/** The time that the store has to confirm that the claim of a cancelled or timed-out acquire is gone. */
const GOODBYE_MS = 1_000;

// Asking and waiting.

export function ask(claim: Live<Asking>, nowMs: number): void {
  sent(claim, nowMs);
  claim.latestAskMs = nowMs;
  claim.sendAcquire();
}

/** Asks for a claim of which the store knows nothing, or of which this client knows nothing yet. */
function askAfresh(claim: Live<Asking>, seenFence: bigint, nowMs: number): void {
  claim.provenUntilMs = 0;
  claim.wait = { heardOfMs: nowMs, fence: seenFence };
  answered(claim);
  ask(claim, nowMs);
}

export function queued(
  claim: Live<Asking | Waiting>,
  sentMs: number,
  nowMs: number,
  answer: WaitingAnswer,
): void {
  answered(claim);
  claim.wait ??= { heardOfMs: sentMs, fence: answer.fence };
  const { wait } = claim;
  wait.heardOfMs = Math.max(wait.heardOfMs, sentMs);
  if (answer.fence > wait.fence) wait.fence = answer.fence;
  claim.provenUntilMs = Math.max(claim.provenUntilMs, provenBy(claim, sentMs, answer.expiresInMs));
  const heartbeatMs = sentMs + claim.request.ttlMs / 3;
  const againMs = retryAt(nowMs, answer.retryInMs);
  claim.attemptMs = noSoonerThan(Math.min(heartbeatMs, againMs));
  claim.isHeartbeat = heartbeatMs < againMs;
  if (claim.phase === "asking") become(claim, "waiting").waits();
}

/** The time to wait is over: `waitMs`, or `maxHoldMs` for a lease that is to be won again. */
export function stopWaiting(claim: Live<Asking | Waiting>, nowMs: number): void {
  if (wasGranted(claim)) lose(claim, "max-hold", undefined, nowMs);
  else if (claim.wait !== undefined) giveUp(claim, "timeout", undefined, nowMs);
  // No answer ever said "waiting", so this is no contention. A short silence does not count as an outage.
  else fail(claim, claim.unavailable("waitMs", claim.attempts >= MIN_ATTEMPTS));
}

/** Takes the claim back. The caller is rejected once the store has confirmed that. */
export function giveUp(
  claim: Live<Asking | Waiting>,
  why: "timeout" | CancelReason,
  reason: unknown,
  nowMs: number,
): void {
  depart(claim, nowMs, GOODBYE_MS, false);
  claim.givesUp(why, reason);
}

/** Rejects the caller at once and leaves the claim to the store. */
export function fail(claim: Live<Asking | Waiting>, error: HoldfastError): void {
  end(claim);
  claim.discard(claim.request);
  claim.failed(error, wasGranted(claim));
}

/** The store does not know the claim of a waiter. */
export function lostPlace(claim: Live<Waiting>, takenOverBy: string | undefined, nowMs: number): void {
  // Taking the claim back from another client would make the two rob each other for ever. Within this client no two calls
  // share an id, so there it was a late request of an earlier call.
  if (takenOverBy !== undefined && takenOverBy !== claim.request.owner) {
    fail(claim, takenOverError(claim.request.key, claim.request.id));
  } else {
    const { fence } = claim.wait;
    askAfresh(become(claim, "asking"), fence, nowMs);
  }
}

// Holding.

export function grantAnswered(
  claim: Live<Asking | Waiting>,
  sentMs: number,
  nowMs: number,
  answer: HeldAnswer,
): void {
  const untilMs = provenBy(claim, sentMs, answer.expiresInMs);
  if (untilMs <= nowMs) retry(claim, tooLateError(claim.request.key), nowMs);
  else hold(claim, answer.fence, untilMs, sentMs, sentMs, nowMs);
}

/** `fromMs` begins the lease, `heardOfMs` the time to its next heartbeat. */
export function hold(
  claim: Live<Asking | Waiting>,
  fence: bigint,
  untilMs: number,
  fromMs: number,
  heardOfMs: number,
  nowMs: number,
): void {
  const again = wasGranted(claim);
  claim.heldSinceMs = nowMs;
  claim.loss = undefined;
  claim.provenUntilMs = untilMs;
  claim.fence = fence;
  // The limit counts from the first grant, also if the lease is won again.
  claim.holdUntilMs ??= noLaterThan(fromMs + claim.settings.maxHoldMs);
  const held = become(claim, "held");
  held.wait = undefined;
  answered(held);
  planHeartbeat(held, heardOfMs, nowMs);
  held.changed();
  held.granted(nowMs, again);
}

/** Answers may come in any order, and each is proof by itself. */
export function prove(
  claim: Live<Held>,
  ref: RenewRef,
  sentMs: number,
  nowMs: number,
  answer: HeldAnswer,
): void {
  answered(claim);
  claim.provenUntilMs = Math.max(claim.provenUntilMs, provenBy(claim, sentMs, answer.expiresInMs));
  const proven = claim.extensions?.takeProven(claim.provenUntilMs, sentMs, ref.ttlMs ?? 0);
  for (const { ticket } of proven ?? []) claim.extended(ticket, undefined);
  claim.proven(claim.provenUntilMs);
  planHeartbeat(claim, sentMs, nowMs);
  claim.changed();
  claim.renewed(claim.provenUntilMs - nowMs);
}

/** Plans the next heartbeat a while after the one that proved the lease, or the next attempt at an open extension. */
function planHeartbeat(claim: Live<Held>, heardOfMs: number, nowMs: number): void {
  const heartbeatMs = heardOfMs + claim.settings.renewEveryMs;
  const extendMs = claim.extensions?.none === false ? nowMs + timeoutMs(claim) : Number.POSITIVE_INFINITY;
  claim.attemptMs = wantsHeartbeats(claim) ? noSoonerThan(Math.min(heartbeatMs, extendMs)) : undefined;
  claim.isHeartbeat = heartbeatMs <= extendMs;
}

/** All open calls of `extend` fail. */
export function endExtensions(claim: Live<Held>, failure: HoldfastError | Loss): void {
  for (const { ticket } of claim.extensions?.take(() => true) ?? []) claim.extended(ticket, failure);
}

/** They fail because the lease is given back. Most leases have none, and errors are expensive. */
export function failExtensions(claim: Live<Held>): void {
  if (claim.extensions?.none === false) endExtensions(claim, notHeldError(claim.request.key));
}

/** The store has lost the lease, and a late request of this client made a claim that is not the lease. */
export function replaced(claim: Live<Held>, nowMs: number): void {
  claim.discard(claim.request);
  lose(claim, "gone", undefined, nowMs);
}

/** Ends the lease, or asks for it again under new ids (`reacquire`). */
export function lose(
  claim: Live<Asking | Waiting | Held>,
  reason: LossReason,
  cause: unknown,
  nowMs: number,
): void {
  const loss = { reason, cause };
  claim.loss = loss;
  // This client no longer acts on the claim, so other callers need not wait for its ttl.
  const isOver = reason === "expired" || reason === "max-hold" || reason === "blocked";
  if (isOver && !claim.stays) claim.discard(claim.request);
  // A lease whose renewal the application has paused ends.
  const isPaused = claim.settings.renew && !claim.renews;
  const canReturn = reason === "expired" || reason === "gone" || reason === "blocked";
  const wasHeld = claim.phase === "held";
  if (claim.phase === "held") {
    endExtensions(claim, loss);
    if (claim.settings.reacquire && !isPaused && canReturn) {
      claim.lost(true, false);
      reacquire(claim, nowMs);
      return;
    }
  }
  claim.lost(wasHeld, true);
  end(claim);
}

/** Asks under new ids, so that no late message about the lost lease can be mistaken for one about the next. */
function reacquire(claim: Live<Held>, nowMs: number): void {
  const asking = become(claim, "asking");
  asking.request = { ...asking.request, ...asking.newIds(), wait: true };
  asking.namedByCaller = false;
  asking.askedMs = nowMs;
  asking.giveUpMs = asking.holdUntilMs;
  askAfresh(asking, 0n, nowMs);
  asking.changed();
  asking.asksAgain();
}

// Leaving.

export function depart(
  claim: Live<Asking | Waiting | Held>,
  nowMs: number,
  patienceMs: number,
  released: boolean,
): void {
  const wasHeld = claim.phase === "held";
  if (claim.phase === "held") failExtensions(claim);
  const leaving = become(claim, "leaving");
  leaving.wasHeld = wasHeld;
  leaving.released = released;
  leaving.giveUpMs = noSoonerThan(nowMs + patienceMs);
  answered(leaving);
  release(leaving, nowMs);
  leaving.changed();
}

export function release(claim: Live<Leaving>, nowMs: number): void {
  sent(claim, nowMs);
  claim.sendRelease();
}

export function failToDepart(claim: Live<Leaving>, error: HoldfastError): void {
  end(claim);
  claim.departFailed(error);
}

/** Leaves the claim in the store until its ttl is over. */
export function leave(claim: Live): Live<Ended> {
  const ended = end(claim);
  ended.left = true;
  return ended;
}

export function end(claim: Live): Live<Ended> {
  const ended = become(claim, "ended");
  ended.changed();
  return ended;
}

// Attempts.

type Calling = Exclude<Claim, { phase: "ended" }>;

export function provenBy(claim: Claim, sentMs: number, expiresInMs: number): number {
  return provenUntil(sentMs, expiresInMs, claim.client.clockDrift);
}

function timeoutMs(claim: Claim): number {
  return answerTimeoutMs(claim.client.requestTimeoutMs, claim.request.ttlMs);
}

export function sent(claim: Calling, nowMs: number): void {
  claim.unansweredSinceMs ??= noLaterThan(nowMs);
  claim.attempts++;
  claim.silences++;
  attemptAgainLater(claim, nowMs);
}

export function attemptAgainLater(claim: Calling, nowMs: number): void {
  claim.attemptMs = noSoonerThan(nowMs + timeoutMs(claim));
  claim.isHeartbeat = false;
}

export function answered(claim: Calling): void {
  claim.unansweredSinceMs = undefined;
  claim.attempts = 0;
  claim.silences = 0;
  claim.lastError = undefined;
}

export function retry(claim: Calling, error: HoldfastError, nowMs: number): void {
  claim.lastError = error;
  claim.silences = 0;
  claim.attemptMs = noSoonerThan(nowMs + retryPauseMs(claim.attempts, timeoutMs(claim)));
  claim.isHeartbeat = false;
}
