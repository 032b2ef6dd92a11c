/**
 * One claim of a client as a state machine: its phases, its data and the times at which something is due.
 *
 * The machine is pure. It reads no clock, calls no store and settles no promise. Each function of claim-events.ts is one
 * event; claim-transitions.ts has the steps that events share. A step changes the claim and notes effects down, and the
 * runner (claim-runner.ts) carries them out once the step is complete. Three rules carry the safety:
 *
 * - A held answer proves the lease until `expiresInMs` after its request was sent, less the drift of clocks, on this machine's
 *   monotonic clock (holding.ts). Past that time the lease is lost for good, whatever answer comes later.
 * - A pushed grant proves the lease until the end of the claim's life in the queue, if its fence is above the one that came
 *   with the latest waiting answer. See docs/decisions/0007.
 * - A claim that is leaving or ended sends nothing but releases. A late answer that grants it is answered with a release.
 */
import { type Deadline, earliest } from "../platform/index.ts";
import type { ClaimRequest, HoldfastError, LossReason } from "../store/index.ts";
import type { CancelReason } from "./events.ts";
import type { Extensions } from "./extensions.ts";
import type { ClientSettings, LockSettings } from "./options.ts";

export const NEVER = Number.POSITIVE_INFINITY;

/** A silence counts as an outage only after this many requests, because a pause of this process looks the same. */
export const MIN_ATTEMPTS = 3;

export type Claim = Asking | Waiting | Held | Leaving | Ended;
export type Phase = Claim["phase"];

export interface Loss {
  readonly reason: LossReason;
  readonly cause: unknown;
}

/** The state of a claim in a queue. A claim that lost its place keeps it while it asks again. */
export interface Wait {
  /** The time at which the latest request was sent that was answered with "waiting", or at which the place was found lost. */
  heardOfMs: number;
  /** The highest fence of the key in any answer so far. */
  fence: bigint;
}

/** The data that every phase has. */
interface Lasting {
  /** Replaced when the lease is won again. */
  request: ClaimRequest;
  readonly settings: LockSettings;
  readonly client: Pick<ClientSettings, "clockDrift" | "requestTimeoutMs">;
  /** Whether the application chose the id, so that another call may have used it too. */
  namedByCaller: boolean;
  /** Whether the lease renews itself: as its lock says, until the application pauses or resumes that. */
  renews: boolean;
  /** Whether the claim stays in the store until its ttl is over, also if the lease is lost or the client closes. */
  stays: boolean;
  /** The time of the first acquire under this id. */
  askedMs: number;
  /** The time of the latest acquire. Answers to older heartbeats are out of date. */
  latestAskMs: number;
  /** The fence of the latest grant; 0n before the first one, while a caller still waits for a lease. */
  fence: bigint;
  heldSinceMs: number;
  /** The time until which the store surely keeps the claim, in whole milliseconds. Only a held claim is a lease until then. */
  provenUntilMs: number;
  /** The end of `maxHoldMs`, counted from the first grant. */
  holdUntilMs: Deadline;
  loss: Loss | undefined;
}

/** A phase in which the store may owe an answer. */
interface Calling extends Lasting {
  /** The time of the next request, if no answer comes before. */
  attemptMs: Deadline;
  /** Whether that is an ordinary heartbeat, which may go out early together with others. */
  isHeartbeat: boolean;
  /** The number of requests since the latest answer. */
  attempts: number;
  /** The number of requests since the latest answer or failure. */
  silences: number;
  unansweredSinceMs: Deadline;
  lastError: unknown;
}

export interface Asking extends Calling {
  phase: "asking";
  giveUpMs: Deadline;
  wait: Wait | undefined;
}

export interface Waiting extends Calling {
  phase: "waiting";
  giveUpMs: Deadline;
  wait: Wait;
}

export interface Held extends Calling {
  phase: "held";
  wait: undefined;
  extensions: Extensions | undefined;
}

export interface Leaving extends Calling {
  phase: "leaving";
  giveUpMs: Deadline;
  wasHeld: boolean;
  released: boolean;
}

export interface Ended extends Lasting {
  phase: "ended";
  released: boolean;
  /** Whether the claim was left in the store for another caller. A late answer is then no reason to release it. */
  left: boolean;
}

/** The claim as one object with the fields of all phases. The types above say which fields count in which phase. */
export class ClaimState {
  phase: Phase = "asking";
  request: ClaimRequest;
  readonly settings: LockSettings;
  readonly client: Pick<ClientSettings, "clockDrift" | "requestTimeoutMs">;
  namedByCaller: boolean;
  renews: boolean;
  stays = false;
  askedMs = 0;
  latestAskMs = 0;
  fence = 0n;
  heldSinceMs = 0;
  provenUntilMs = 0;
  holdUntilMs: Deadline = undefined;
  loss: Loss | undefined = undefined;
  attemptMs: Deadline = undefined;
  isHeartbeat = false;
  attempts = 0;
  silences = 0;
  unansweredSinceMs: Deadline = undefined;
  lastError: unknown = undefined;
  giveUpMs: Deadline = undefined;
  wait: Wait | undefined = undefined;
  extensions: Extensions | undefined = undefined;
  wasHeld = false;
  released = false;
  left = false;

  constructor(
    request: ClaimRequest,
    settings: LockSettings,
    client: Pick<ClientSettings, "clockDrift" | "requestTimeoutMs">,
    namedByCaller: boolean,
  ) {
    this.request = request;
    this.settings = settings;
    this.client = client;
    this.namedByCaller = namedByCaller;
    this.renews = settings.renew;
  }
}

/** The effects of a step. Sends and reports are only noted down; the runner carries them out after the step. */
export interface Effects {
  // Requests to the store.
  sendAcquire(): void;
  sendRenewal(): void;
  sendRelease(): void;
  /** Releases a claim without waiting for the answer. */
  discard(request: ClaimRequest): void;

  // The state has changed.
  moved(from: Phase, to: Phase): void;
  proven(untilMs: number): void;
  /** The state that `watch` shows has changed. */
  changed(): void;

  // Answers to the application.
  granted(nowMs: number, again: boolean): void;
  contended(): void;
  failed(error: HoldfastError, again: boolean): void;
  /** The caller is rejected once the claim is gone from the store. */
  givesUp(why: "timeout" | CancelReason, reason: unknown): void;
  departed(wasThere: boolean): void;
  departFailed(error: HoldfastError): void;
  /** A call of `extend` has ended: it succeeded, or it failed with an error or the loss of the lease. */
  extended(ticket: number, failure: HoldfastError | Loss | undefined): void;

  // Statistics and events.
  waits(): void;
  asksAgain(): void;
  /** Called before the request is replaced. `ends` is false if the lease is to be won again. */
  lost(wasHeld: boolean, ends: boolean): void;
  renewed(leftMs: number): void;
  renewalFailed(error: HoldfastError, leftMs: number): void;
  renewalUnanswered(leftMs: number): void;
  requestFailed(error: HoldfastError, isOutage: boolean): void;
  /** The store has been silent beyond this bound. Returns the error for the caller; counts an outage if `isOutage`. */
  unavailable(bound: "ttlMs" | "requestTimeoutMs" | "waitMs", isOutage: boolean): HoldfastError;

  newIds(): { id: string; token: string };
}

export type Live<C extends Claim = Claim> = C & Effects;

/** Changes the phase. No other function writes it. */
export function become<P extends Phase>(claim: Live, to: P): Live<Extract<Claim, { phase: P }>> {
  const from = claim.phase;
  (claim as { phase: Phase }).phase = to;
  claim.moved(from, to);
  return claim as Live<Extract<Claim, { phase: P }>>;
}

export function isOpen(claim: Claim): claim is Asking | Waiting | Held {
  return claim.phase !== "leaving" && claim.phase !== "ended";
}

/** Whether there has been a lease. From then on no caller waits for the first one. */
export function wasGranted(claim: Claim): boolean {
  return claim.fence !== 0n;
}

/** A lease that does not renew itself sends heartbeats only to be extended. */
export function wantsHeartbeats(claim: Held): boolean {
  return claim.renews || claim.extensions?.none === false;
}

// Times.

export function dueMs(claim: Claim): number {
  if (claim.phase === "ended") return NEVER;
  return earliest(claim.attemptMs, limitMs(claim)) ?? NEVER;
}

/** The part of the time before `dueMs` in which the claim may already be served, so that heartbeats travel together. */
export function earlyMs(claim: Claim): number {
  if (claim.phase === "ended" || !claim.isHeartbeat || dueMs(claim) !== claim.attemptMs) return 0;
  return claim.settings.renewEveryMs / 40;
}

/** The time at which the phase ends by itself. */
function limitMs(claim: Asking | Waiting | Held | Leaving): Deadline {
  switch (claim.phase) {
    case "leaving":
      return claim.giveUpMs;
    case "held":
      return earliest(earliest(claim.provenUntilMs, claim.holdUntilMs), claim.extensions?.giveUpMs);
    default:
      return earliest(claim.giveUpMs, patienceEndsMs(claim));
  }
}

/** The time at which a silent store counts as unavailable. A lease that is being won again waits without end. */
export function patienceEndsMs(claim: Asking | Waiting): Deadline {
  const { attempts, unansweredSinceMs } = claim;
  if (wasGranted(claim) || attempts < MIN_ATTEMPTS || unansweredSinceMs === undefined) return undefined;
  return unansweredSinceMs + (claim.phase === "asking" ? claim.client.requestTimeoutMs : claim.request.ttlMs);
}

/** Whether the process must not end while the claim is in this state. The first request of an acquire does so by itself. */
export function keepsProcessAlive(claim: Claim): boolean {
  const isAwaited = claim.settings.keepProcessAlive || !wasGranted(claim);
  switch (claim.phase) {
    case "asking":
      return isAwaited && (claim.lastError !== undefined || claim.wait !== undefined);
    case "waiting":
      return isAwaited;
    case "held":
      return claim.settings.keepProcessAlive;
    case "leaving":
      return claim.lastError !== undefined;
    case "ended":
      return false;
  }
}
