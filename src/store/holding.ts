/**
 * Holding a lease: the proof that an answer gives, the verdict on an answer, and the pace of attempts.
 *
 * The client's claim and the heartbeat in a worker thread share these functions. An answer proves the lease until
 * `expiresInMs` after its request was sent, less the drift of the clocks and one tick of the store's clock.
 */
import type { RenewAnswer } from "./store.ts";
import { isSound } from "./store-calls.ts";

/** Stores keep time in whole milliseconds, so a claim can expire up to this much earlier than its answer says. */
const STORE_TICK_MS = 1;

/** The first pause before a failed request is repeated. It doubles up to the time allowed for an answer. */
const FIRST_RETRY_MS = 20;

/** The end of the lease that an answer proves, rounded down to whole milliseconds. */
export function provenUntil(sentMs: number, expiresInMs: number, clockDrift: number): number {
  return Math.floor(sentMs + expiresInMs * (1 - clockDrift) - STORE_TICK_MS);
}

/** The time at which a waiting claim asks again, if the store says to do so in `retryInMs`. */
export function retryAt(nowMs: number, retryInMs: number): number {
  return nowMs + Math.max(0, retryInMs) + STORE_TICK_MS;
}

/** The time after which an unanswered request is sent again. Several attempts fit into the time the store is given. */
export function answerTimeoutMs(requestTimeoutMs: number, ttlMs: number): number {
  return Math.min(requestTimeoutMs, ttlMs / 2) / 3;
}

/** The pause before a failed request is repeated. */
export function retryPauseMs(attempts: number, timeoutMs: number): number {
  return Math.min(FIRST_RETRY_MS * 2 ** Math.min(attempts - 1, 10), timeoutMs);
}

/** The meaning of a renewal's answer for a held lease. */
export type Verdict =
  | "held"
  /** The store has the claim, but not this lease: it lost the lease, and a late request of this client made another claim. */
  | "replaced"
  | "gone"
  | "taken-over"
  | "failed"
  /** The answer breaks the store contract. */
  | "invalid";

export function verdictOn(answer: RenewAnswer | undefined, fence: bigint): Verdict {
  if (answer === undefined || !isSound(answer)) return "invalid";
  switch (answer.state) {
    case "held":
      return answer.fence === fence ? "held" : "replaced";
    case "waiting":
      return "replaced";
    case "gone":
      return answer.takenOverBy === undefined ? "gone" : "taken-over";
    default:
      return "failed";
  }
}
