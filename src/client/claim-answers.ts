/** The events of a claim that come from the store: answers, failures and pushed grants. claim.ts explains the machine. */

import {
  type AcquireAnswer,
  type ClaimRequest,
  type FailedAnswer,
  type HeldAnswer,
  HoldfastError,
  isSound,
  type RefusalReason,
  type RenewAnswer,
  type RenewRef,
  unsoundError,
  verdictOn,
} from "../store/index.ts";
import {
  type Asking,
  type Held,
  isOpen,
  type Live,
  type Waiting,
  wantsHeartbeats,
  wasGranted,
} from "./claim.ts";
import { refusalError } from "./claim-errors.ts";
import {
  answered,
  end,
  fail,
  failToDepart,
  grantAnswered,
  hold,
  lose,
  lostPlace,
  prove,
  queued,
  replaced,
  retry,
  sent,
} from "./claim-transitions.ts";

export function acquireAnswered(
  claim: Live,
  request: ClaimRequest,
  sentMs: number,
  nowMs: number,
  answer: AcquireAnswer,
): void {
  if (!isSound(answer)) acquireFailed(claim, request, unsoundError(request.key), nowMs);
  else if (!isOpen(claim) || request.token !== claim.request.token) {
    // A claim that this client has given up must not stay in the store for its ttl.
    const isLeft = claim.phase === "ended" && claim.left;
    if (answer.state !== "refused" && !isLeft) claim.discard(request);
  } else if (claim.phase === "held") heldAcquireAnswered(claim, request, sentMs, nowMs, answer);
  else if (claim.wait !== undefined && sentMs < claim.wait.heardOfMs) {
    // A later answer has overtaken this one. The claim may be gone since, and another client may hold the key.
    if (claim.phase === "waiting" && answer.state === "held") claim.sendRenewal();
  } else if (answer.state === "held") grantAnswered(claim, sentMs, nowMs, answer);
  else if (answer.state === "waiting") queued(claim, sentMs, nowMs, answer);
  else if (claim.phase === "asking") refused(claim, answer.reason, nowMs);
}

/** The answer to a repeated acquire. The lease was granted by an earlier answer or by a push. */
function heldAcquireAnswered(
  claim: Live<Held>,
  request: ClaimRequest,
  sentMs: number,
  nowMs: number,
  answer: AcquireAnswer,
): void {
  if (answer.state === "held" && answer.fence === claim.fence) prove(claim, request, sentMs, nowMs, answer);
  else if (answer.state === "held" || isLaterWait(claim, sentMs, answer)) replaced(claim, nowMs);
}

/** The store never takes a grant back, so a "waiting" answer to an older request is only late. */
function isLaterWait(claim: Held, sentMs: number, answer: AcquireAnswer | RenewAnswer | undefined): boolean {
  return answer?.state === "waiting" && sentMs > claim.heldSinceMs;
}

function refused(claim: Live<Asking>, reason: RefusalReason, nowMs: number): void {
  const { key, id } = claim.request;
  if (wasGranted(claim)) {
    retry(claim, refusalError(reason, key, id), nowMs);
    return;
  }
  // An earlier request without an answer may still arrive and be granted.
  if (claim.attempts > 1) claim.discard(claim.request);
  end(claim);
  if (reason === "contended") claim.contended();
  else claim.failed(refusalError(reason, key, id), false);
}

/** An acquire has failed. That says nothing about a lease that is held already. */
export function acquireFailed(claim: Live, request: ClaimRequest, cause: unknown, nowMs: number): void {
  const error = HoldfastError.from(cause, claim.request.key);
  claim.requestFailed(error, error.retryable);
  if (!isOpen(claim) || request.token !== claim.request.token || claim.phase === "held") return;
  if (!error.retryable && !wasGranted(claim)) fail(claim, error);
  else retry(claim, error, nowMs);
}

/** A heartbeat goes out. Returns the request for the store. */
export function renewalSent(claim: Live<Waiting | Held>, sentMs: number): RenewRef {
  sent(claim, sentMs);
  const extendMs = (claim.phase === "held" && claim.extensions?.nextTtlMs(claim.renews)) || 0;
  // A lease that does not renew itself gets the ttl of its extensions and no more.
  if (extendMs === 0 || (claim.renews && extendMs <= claim.request.ttlMs)) return claim.request;
  return { ...claim.request, ttlMs: extendMs };
}

export function renewalAnswered(
  claim: Live,
  ref: RenewRef,
  sentMs: number,
  nowMs: number,
  answer: RenewAnswer | undefined,
): void {
  // An answer from before the latest acquire says nothing about the claim that the acquire made.
  if (ref.token !== claim.request.token || sentMs < claim.latestAskMs) return;
  if (claim.phase === "waiting") waiterRenewed(claim, ref, sentMs, nowMs, answer);
  else if (claim.phase === "held") leaseRenewed(claim, ref, sentMs, nowMs, answer);
}

function waiterRenewed(
  claim: Live<Waiting>,
  ref: RenewRef,
  sentMs: number,
  nowMs: number,
  answer: RenewAnswer | undefined,
): void {
  if (answer === undefined || !isSound(answer))
    renewalFailed(claim, ref, sentMs, unsoundError(ref.key), nowMs);
  else if (answer.state === "held") grantAnswered(claim, sentMs, nowMs, answer);
  else if (answer.state === "waiting") queued(claim, sentMs, nowMs, answer);
  else if (answer.state === "failed") renewalFailed(claim, ref, sentMs, answer.error, nowMs);
  else lostPlace(claim, answer.takenOverBy, nowMs);
}

function leaseRenewed(
  claim: Live<Held>,
  ref: RenewRef,
  sentMs: number,
  nowMs: number,
  answer: RenewAnswer | undefined,
): void {
  const verdict = verdictOn(answer, claim.fence);
  switch (verdict) {
    case "held":
      prove(claim, ref, sentMs, nowMs, answer as HeldAnswer);
      return;
    case "replaced":
      if (answer?.state === "held" || isLaterWait(claim, sentMs, answer)) replaced(claim, nowMs);
      return;
    case "invalid":
      renewalFailed(claim, ref, sentMs, unsoundError(ref.key), nowMs);
      return;
    case "failed":
      renewalFailed(claim, ref, sentMs, (answer as FailedAnswer).error, nowMs);
      return;
    default:
      lose(claim, verdict, undefined, nowMs);
  }
}

export function renewalFailed(
  claim: Live,
  ref: RenewRef,
  sentMs: number,
  cause: unknown,
  nowMs: number,
): void {
  const error = HoldfastError.from(cause, claim.request.key);
  const isExtra = claim.renews && (ref.ttlMs ?? claim.request.ttlMs) !== claim.request.ttlMs;
  // The store may serve the lease itself meanwhile. An extension that it does not serve in time is an outage then.
  claim.requestFailed(error, error.retryable && !isExtra);
  if (!isOpen(claim) || ref.token !== claim.request.token) return;
  if (claim.phase === "held") leaseRenewalFailed(claim, ref, sentMs, error, isExtra, nowMs);
  else if (!error.retryable && !wasGranted(claim)) fail(claim, error);
  else retry(claim, error, nowMs);
}

function leaseRenewalFailed(
  claim: Live<Held>,
  ref: RenewRef,
  sentMs: number,
  error: HoldfastError,
  isExtra: boolean,
  nowMs: number,
): void {
  const refusals = error.retryable ? [] : (claim.extensions?.takeRefused(ref, claim.request, sentMs) ?? []);
  const isRefused = refusals.length > 0;
  for (const { ticket } of refusals) claim.extended(ticket, error);
  // A refusal is an answer, so a lease that ends for want of heartbeats does not end by an outage.
  if (isRefused) answered(claim);
  const { lastError } = claim;
  if (wantsHeartbeats(claim)) retry(claim, error, nowMs);
  claim.renewalFailed(error, claim.provenUntilMs - nowMs);
  // A refused extension is not the cause if the lease or another extension fails later.
  if (!error.retryable && (isRefused || isExtra)) claim.lastError = lastError;
  if (!isRefused || !claim.renews) return;
  // The lease's own heartbeat goes out at once, then the request for the extensions that were not refused.
  claim.sendRenewal();
  if (claim.extensions?.anyAskedBy(sentMs)) claim.sendRenewal();
}

/**
 * The store has pushed a grant. Returns whether the claim is held by it. Otherwise a heartbeat has to ask the store:
 * - The fence may be of an older grant.
 * - Little may be left of the claim's life.
 * - An earlier call may have used the application's id too, and a late request of that call may have taken the claim over.
 */
export function pushed(claim: Live, fence: bigint | undefined, nowMs: number): boolean {
  if (claim.phase !== "waiting" || claim.namedByCaller) return false;
  const { heardOfMs, fence: seenFence } = claim.wait;
  if (fence === undefined || fence <= seenFence) return false;
  const untilMs = claim.provenUntilMs;
  if (untilMs - nowMs < claim.request.ttlMs / 2) return false;
  hold(claim, fence, untilMs, nowMs, heardOfMs, nowMs);
  return true;
}

export function releaseAnswered(claim: Live, removed: boolean): void {
  if (claim.phase !== "leaving") return;
  // If a repeated release finds no claim, an earlier one removed it and its answer was lost.
  const wasThere = removed || claim.attempts > 1;
  end(claim);
  claim.departed(wasThere);
}

export function releaseFailed(claim: Live, cause: unknown, nowMs: number): void {
  const error = HoldfastError.from(cause, claim.request.key);
  claim.requestFailed(error, error.retryable);
  if (claim.phase !== "leaving") return;
  if (error.retryable) retry(claim, error, nowMs);
  else failToDepart(claim, error);
}
