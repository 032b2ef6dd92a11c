/**
 * The second heartbeat: renews the leases that the first one does not get to, because the event loop of its thread is blocked.
 *
 * It renews a lease when the first heartbeat is late by a sixth of the ttl, which by default is when half of the ttl is left, and from
 * then on at the cadence of the lease, until the first one is back. Four rules carry its safety; docs/decisions/0018-heartbeat-thread.md has the
 * interleavings.
 *
 * - An answer proves the lease until `expiresInMs` after its request was *sent*, less the drift of clocks, if it bears the fence
 *   of the lease and comes before what was proven until then has ended.
 * - A loss is written into the cell before anything else is done about it, so that the application knows before anybody else
 *   can be granted the key.
 * - Whatever comes after a lease was dropped, or after it was lost, is not written.
 * - A store that has not renewed a single lease yet may be the wrong one, so that it does not know a lease means nothing.
 */

import type { StandbyLoss } from "../../client/index.ts";
import type { Clock, Timer } from "../../platform/index.ts";
import { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "../../record/index.ts";
import {
  answerTimeoutMs,
  type ClaimRef,
  callStore,
  type FailedAnswer,
  type HeldAnswer,
  HoldfastError,
  heartbeatCalls,
  provenUntil,
  type RenewAnswer,
  retryPauseMs,
  type Store,
  unsoundError,
  verdictOn,
} from "../../store/index.ts";
import { Cell } from "./cell.ts";
import type { KeepOrder, News } from "./protocol.ts";

export interface StandbyOptions {
  readonly store: Pick<Store, "renew" | "release">;
  /** Its monotonic time is the one that the cells are written in. */
  readonly clock: Clock;
  readonly clockDrift: number;
  readonly requestTimeoutMs: number;
  readonly maxBlockedMs: number;
  /** When the event loop of the application last turned. */
  lifeMs(): number;
  tell(news: News): void;
}

/** A store that has never answered is reported after so many attempts, unless it says that repeating is of no use. */
const ATTEMPTS_TO_REPORT = 5;
/** The shortest time between two looks at a lease. */
const MIN_PAUSE_MS = 1;

/** A lease that this heartbeat looks after. */
interface Charge {
  readonly number: number;
  readonly ref: ClaimRef;
  readonly fence: bigint;
  readonly ttlMs: number;
  readonly renewEveryMs: number;
  readonly holdUntilMs: number;
  readonly cell: Cell;
  /** When to look at it next; the order of the heap. */
  lookMs: number;
  slot: number;
  /** Not renewed again before, because an answer is awaited or a renewal has failed. */
  attemptMs: number;
  attempts: number;
  /** How many renewals in a row have not even failed. */
  silences: number;
}

export class Standby {
  readonly #options: StandbyOptions;
  readonly #charges = new Map<number, Charge>();
  readonly #byLook: Charge[] = [];
  #timer: Timer | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  /** Whether the store has renewed a lease, so that it is known to be the one in which they are. */
  #isProven = false;
  /** The lease whose renewal is to show that, while the first heartbeat still gets to it. */
  #trial: number | undefined;
  #isReported = false;

  constructor(options: StandbyOptions) {
    this.#options = options;
  }

  keep({ number, key, id, token, fence, ttlMs, renewEveryMs, holdUntilMs, cell }: KeepOrder): void {
    if (this.#charges.has(number)) return;
    const nowMs = this.#options.clock.monotonicMs();
    const ref = token === undefined ? { key, id } : { key, id, token };
    const charge: Charge = {
      ...{ number, ref, fence, ttlMs, renewEveryMs, holdUntilMs },
      cell: new Cell(cell),
      lookMs: 0,
      slot: -1,
      attemptMs: 0,
      attempts: 0,
      silences: 0,
    };
    this.#charges.set(number, charge);
    if (!this.#isProven) this.#trial ??= number;
    charge.lookMs = this.#nextLookMs(charge, nowMs);
    heapInsert(this.#byLook, charge, byLook);
    this.#arm();
  }

  drop(number: number): void {
    const charge = this.#charges.get(number);
    if (charge === undefined) return;
    this.#charges.delete(number);
    if (this.#trial === number) this.#trial = undefined;
    heapRemove(this.#byLook, charge, byLook);
  }

  close(): void {
    this.#charges.clear();
    this.#byLook.length = 0;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #run(nowMs: number): void {
    const due: Charge[] = [];
    for (let next = this.#byLook[0]; next !== undefined; next = this.#byLook[0]) {
      if (next.lookMs > nowMs) break;
      if (next.cell.isOver) {
        this.drop(next.number);
        continue;
      }
      const limit = this.#limitReached(next, nowMs);
      if (limit !== undefined) {
        this.#end(next, limit);
        this.#release(next);
        continue;
      }
      if (nowMs >= this.#dueMs(next) && nowMs >= next.attemptMs && nowMs < provenUntilMs(next)) {
        due.push(next);
        // Until it is sent below; then its time is known.
        next.attemptMs = nowMs + this.#answerMs(next);
      }
      next.lookMs = this.#nextLookMs(next, nowMs);
      heapUpdate(this.#byLook, next, byLook);
    }
    for (const call of heartbeatCalls(due)) this.#renew(call, nowMs);
  }

  /** When to renew a lease that nobody else renews: what the first heartbeat has proven is left to it for longer. */
  #dueMs(charge: Charge): number {
    const { cell, ttlMs, renewEveryMs } = charge;
    if (charge.number === this.#trial) return charge.attemptMs;
    const restMs = ttlMs - renewEveryMs;
    return Math.max(cell.firstProofMs - restMs + slackMs(charge), cell.secondProofMs - restMs);
  }

  /** Why the lease must not be renewed any more. The application ends it by itself where its event loop turns. */
  #limitReached(charge: Charge, nowMs: number): StandbyLoss | undefined {
    // Past its deadline it is lost without this heartbeat's doing, and the application sees so by itself.
    if (nowMs >= provenUntilMs(charge)) return undefined;
    if (nowMs >= charge.holdUntilMs + slackMs(charge)) return "max-hold";
    if (nowMs >= this.#blockedUntilMs(charge)) return "blocked";
    return undefined;
  }

  /** Never earlier than the lease would end without this heartbeat. */
  #blockedUntilMs({ cell }: Charge): number {
    return Math.max(this.#options.lifeMs() + this.#options.maxBlockedMs, cell.firstProofMs);
  }

  #nextLookMs(charge: Charge, nowMs: number): number {
    // One whose time is up is over, unless the application has just proven more: that is found out later.
    if (nowMs >= provenUntilMs(charge)) return nowMs + charge.ttlMs / 2;
    const renewMs = Math.max(this.#dueMs(charge), charge.attemptMs);
    const limitMs = Math.min(charge.holdUntilMs + slackMs(charge), this.#blockedUntilMs(charge));
    return Math.max(nowMs + MIN_PAUSE_MS, Math.min(renewMs, limitMs));
  }

  #renew(charges: readonly Charge[], sentMs: number): void {
    for (const charge of charges) {
      charge.attempts++;
      charge.silences++;
      charge.attemptMs = sentMs + this.#answerMs(charge);
      if (charge.attempts > ATTEMPTS_TO_REPORT)
        this.#report("STORE_UNAVAILABLE", "The thread does not answer.");
    }
    callStore(() => this.#options.store.renew(charges.map(({ ref }) => ref))).then(
      (answers) => {
        charges.forEach((charge, index) => {
          charge.silences = 0;
          this.#answered(charge, sentMs, answers?.[index]);
        });
      },
      (error: unknown) => {
        for (const charge of charges) {
          charge.silences = 0;
          this.#failed(charge, error);
        }
      },
    );
  }

  #answered(charge: Charge, sentMs: number, answer: RenewAnswer | undefined): void {
    // The application has dropped the lease meanwhile, or it is known to be lost.
    if (!this.#charges.has(charge.number) || charge.cell.isOver) return;
    const verdict = verdictOn(answer, charge.fence);
    switch (verdict) {
      case "held":
        this.#proven(charge, sentMs, (answer as HeldAnswer).expiresInMs);
        return;
      case "failed":
        this.#failed(charge, (answer as FailedAnswer).error);
        return;
      case "invalid":
        this.#failed(charge, unsoundError(charge.ref.key));
        return;
      case "replaced":
        this.#end(charge, "gone");
        return;
      case "gone":
        if (!this.#isProven) this.#unknown(charge);
        else this.#end(charge, "gone");
        return;
      case "taken-over":
        this.#end(charge, "taken-over");
    }
  }

  #proven(charge: Charge, sentMs: number, expiresInMs: number): void {
    const { clock, clockDrift, tell } = this.#options;
    const untilMs = provenUntil(sentMs, expiresInMs, clockDrift);
    // Too late: the application may have looked in between, and has then given the lease up.
    if (clock.monotonicMs() >= provenUntilMs(charge)) return;
    if (untilMs > charge.cell.secondProofMs) charge.cell.secondProofMs = untilMs;
    this.#attemptAgain(charge, 0);
    charge.attempts = 0;
    if (this.#isProven) return;
    this.#isProven = true;
    this.#trial = undefined;
    tell({ type: "proven" });
  }

  #unknown(charge: Charge): void {
    if (this.#trial === charge.number) this.#trial = undefined;
    this.#attemptAgain(charge, charge.ttlMs / 3);
    this.#options.tell({ type: "unknown", number: charge.number });
  }

  #failed(charge: Charge, cause: unknown): void {
    if (!this.#charges.has(charge.number)) return;
    const pauseMs = retryPauseMs(charge.attempts, this.#answerMs(charge));
    this.#attemptAgain(charge, pauseMs);
    const { code, message, retryable } = HoldfastError.from(cause, charge.ref.key);
    if (!retryable || charge.attempts >= ATTEMPTS_TO_REPORT) this.#report(code, message);
  }

  #report(code: string, message: string): void {
    if (this.#isProven || this.#isReported) return;
    this.#isReported = true;
    this.#options.tell({ type: "failing", code, message });
  }

  #attemptAgain(charge: Charge, pauseMs: number): void {
    const nowMs = this.#options.clock.monotonicMs();
    charge.attemptMs = nowMs + pauseMs;
    charge.lookMs = this.#nextLookMs(charge, nowMs);
    heapUpdate(this.#byLook, charge, byLook);
    this.#arm();
  }

  /** The lease is over, and the application is told first of all. */
  #end(charge: Charge, loss: StandbyLoss): void {
    charge.cell.loss = loss;
    this.drop(charge.number);
    this.#options.tell({ type: "lost", number: charge.number });
  }

  /** Nobody acts on this lease any more, so nobody should have to wait for it to expire. If this fails, its ttl ends it. */
  #release({ ref }: Charge): void {
    callStore(() => this.#options.store.release([ref])).catch(() => {});
  }

  /** How long one renewal may take before it is sent again. */
  #answerMs({ ttlMs }: Charge): number {
    return answerTimeoutMs(this.#options.requestTimeoutMs, ttlMs);
  }

  #arm(): void {
    const next = this.#byLook[0];
    if (next === undefined || next.lookMs >= this.#timerAtMs) return;
    this.#timer?.cancel();
    const { clock } = this.#options;
    const nowMs = clock.monotonicMs();
    // A bound that no lease needs, and below what Node can wait for.
    const delayMs = Math.min(Math.max(0, next.lookMs - nowMs), 3_600_000);
    this.#timerAtMs = nowMs + delayMs;
    this.#timer = clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      this.#run(clock.monotonicMs());
      this.#arm();
    });
  }
}

function provenUntilMs({ cell }: Charge): number {
  return Math.max(cell.firstProofMs, cell.secondProofMs);
}

/** By how much the application may be late with what it does itself. */
function slackMs({ ttlMs }: Charge): number {
  return ttlMs / 6;
}

const byLook: HeapOrder<Charge> = {
  before: (a, b) => a.lookMs < b.lookMs,
  slotOf: (charge) => charge.slot,
  setSlot: (charge, slot) => {
    charge.slot = slot;
  },
};
