/** The events of a claim that come from the application and from the clock. claim.ts explains the machine. */

import { hasCome, noSoonerThan } from "../platform/index.ts";
import type { HoldfastError } from "../store/index.ts";
import {
  type Asking,
  dueMs,
  earlyMs,
  type Held,
  isOpen,
  type Live,
  type Loss,
  MIN_ATTEMPTS,
  patienceEndsMs,
  type Waiting,
  wantsHeartbeats,
  wasGranted,
} from "./claim.ts";
import { closedError } from "./claim-errors.ts";
import {
  answered,
  ask,
  attemptAgainLater,
  depart,
  endExtensions,
  fail,
  failExtensions,
  failToDepart,
  giveUp,
  leave,
  lose,
  provenBy,
  release,
  replaced,
  stopWaiting,
} from "./claim-transitions.ts";
import type { CancelReason } from "./events.ts";
import { Extensions } from "./extensions.ts";
import type { KeptClaim } from "./standby.ts";

type Kept = Pick<KeptClaim, "provenUntilMs" | "loss"> | undefined;

// The application.

export function asked(claim: Live<Asking>, waitMs: number, nowMs: number): void {
  // A try waits for the store's answer, not for the lock.
  if (claim.request.wait) claim.giveUpMs = noSoonerThan(nowMs + waitMs);
  claim.askedMs = nowMs;
  ask(claim, nowMs);
}

/** The caller's signal has aborted, or the client closes. Too late once the lock is held. */
export function cancelled(claim: Live, why: CancelReason, reason: unknown, nowMs: number): void {
  if (claim.phase === "asking" || claim.phase === "waiting") giveUp(claim, why, reason, nowMs);
}

/** Ends this client's part in the claim, which stays in the store until its ttl is over. */
export function detached(claim: Live): void {
  if (!isOpen(claim)) return;
  if (claim.phase === "held") failExtensions(claim);
  leave(claim).released = true;
}

export function extendAsked(claim: Live<Held>, ttlMs: number, ticket: number, nowMs: number): void {
  claim.extensions ??= new Extensions();
  claim.extensions.open.push({
    ticket,
    askedMs: nowMs,
    ttlMs,
    untilMs: provenBy(claim, nowMs, ttlMs),
    giveUpMs: Math.ceil(nowMs + claim.client.requestTimeoutMs),
  });
  claim.sendRenewal();
}

/** The application pauses or resumes the lease's own heartbeats. */
export function renewalSwitched(claim: Live<Asking | Waiting | Held>, on: boolean): void {
  claim.renews = on;
  if (claim.phase !== "held") return;
  if (on) claim.sendRenewal();
  else if (!wantsHeartbeats(claim)) {
    // Unanswered requests are no longer the reason why the lease ends.
    answered(claim);
    claim.attemptMs = undefined;
  }
}

export function released(claim: Live<Asking | Waiting | Held>, nowMs: number): void {
  depart(claim, nowMs, claim.client.requestTimeoutMs, true);
}

/** The client closes. */
export function closed(claim: Live, nowMs: number): void {
  if (!isOpen(claim)) return;
  if (!wasGranted(claim)) {
    cancelled(claim, "closed", closedError(claim.request.key), nowMs);
    return;
  }
  const loss: Loss = { reason: "closed", cause: undefined };
  claim.loss = loss;
  claim.lost(claim.phase === "held", true);
  if (claim.phase === "held") endExtensions(claim, loss);
  if (claim.stays) leave(claim);
  else depart(claim, nowMs, claim.client.requestTimeoutMs, false);
}

/** The lease object was garbage-collected. The store keeps the claim for its ttl, because code may still rely on the lease. */
export function abandoned(claim: Live<Asking | Waiting | Held>, nowMs: number): void {
  // A lease that is being won again protects nothing.
  if (claim.phase !== "held") claim.discard(claim.request);
  lose(claim, "abandoned", undefined, nowMs);
}

// Time.

/**
 * Ends a lease whose time is over. `kept` is what the heartbeat in a worker thread knows of the lease. Every question of the
 * application comes here first. Returns whether the lease is held.
 */
export function looked(claim: Live, kept: Kept, nowMs: number): boolean {
  if (claim.phase !== "held") return false;
  if (kept !== undefined) {
    const { provenUntilMs, loss } = kept;
    claim.provenUntilMs = Math.max(claim.provenUntilMs, Math.floor(provenUntilMs));
    if (loss !== undefined) {
      // The store may have a claim under this id that no heartbeat renews.
      if (loss === "gone") replaced(claim, nowMs);
      else lose(claim, loss, undefined, nowMs);
      return false;
    }
  }
  if (nowMs >= claim.provenUntilMs) lose(claim, "expired", whyUnproven(claim), nowMs);
  else if (hasCome(claim.holdUntilMs, nowMs)) lose(claim, "max-hold", undefined, nowMs);
  else return true;
  return false;
}

/** The failure that kept a lease from being renewed; undefined if this process was paused. */
function whyUnproven(claim: Live<Held>): unknown {
  if (claim.lastError !== undefined) return claim.lastError;
  return claim.attempts < MIN_ATTEMPTS ? undefined : claim.unavailable("requestTimeoutMs", true);
}

/** The time `dueMs` has come. Returns whether a heartbeat is due. */
export function fellDue(claim: Live, kept: Kept, nowMs: number): boolean {
  switch (claim.phase) {
    case "asking":
    case "waiting":
      if (hasCome(claim.giveUpMs, nowMs)) stopWaiting(claim, nowMs);
      else if (hasCome(patienceEndsMs(claim), nowMs)) fail(claim, silenceOf(claim));
      else if (claim.phase === "waiting") return renewalDue(claim, nowMs);
      else ask(claim, nowMs);
      return false;
    case "held":
      // If the lease is lost or asked for again, the time meant nothing else.
      if (!looked(claim, kept, nowMs)) return false;
      for (const { ticket } of claim.extensions?.takeOverdue(nowMs) ?? []) {
        claim.extended(ticket, claim.unavailable("requestTimeoutMs", true));
      }
      if (!wantsHeartbeats(claim)) claim.attemptMs = undefined;
      return dueMs(claim) - earlyMs(claim) <= nowMs && renewalDue(claim, nowMs);
    case "leaving":
      if (hasCome(claim.giveUpMs, nowMs)) failToDepart(claim, claim.unavailable("requestTimeoutMs", true));
      else release(claim, nowMs);
      return false;
    case "ended":
      return false;
  }
}

function silenceOf(claim: Live<Asking | Waiting>): HoldfastError {
  return claim.unavailable(claim.phase === "waiting" ? "ttlMs" : "requestTimeoutMs", true);
}

function renewalDue(claim: Live<Waiting | Held>, nowMs: number): true {
  attemptAgainLater(claim, nowMs);
  if (claim.phase === "held") {
    // Own heartbeats and extensions take turns while neither is answered.
    if (claim.attempts % 2 === 1 && claim.extensions !== undefined) claim.extensions.isOwnNext = true;
    if (claim.silences > 0) claim.renewalUnanswered(claim.provenUntilMs - nowMs);
  }
  return true;
}
