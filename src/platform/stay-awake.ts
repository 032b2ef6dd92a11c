/**
 * Keeps the event loop turning while the answer of a server nearby is about to come.
 *
 * A process without anything to do is put to sleep by the kernel, and to be woken takes it longer than such a server needs for its
 * answer: tens of microseconds on a virtual machine. So for a moment it is better not to go to sleep. Whatever else the process
 * has to do is done in the turns meanwhile; what is spent is processor time, up to `limitMs` after a call and after each answer. Where
 * answers take longer than that, as over most networks, it would be spent for nothing: each time that none came in time, twice as
 * many calls as before are made the usual way before it is tried again.
 */
import { availableParallelism } from "node:os";
import { performance } from "node:perf_hooks";

/** How long it is worth to wait for a server on the same machine: it answers a call, also one of a hundred operations, in less. */
const LIMIT_MS = 0.25;

/** The most calls that are made the usual way in between. */
const MOST_SKIPPED = 1_024;

const NONE = 0;

export interface StayAwakeOptions {
  /** How long it is worth to wait, in milliseconds. */
  readonly limitMs?: number;
  readonly nowMs?: () => number;
  /** Calls back in the next turn of the event loop. */
  readonly nextTurn?: (callback: () => void) => void;
  /** With one alone, this process would keep the server from working. */
  readonly processors?: number;
}

export class StayAwake {
  readonly #limitMs: number;
  readonly #nowMs: () => number;
  readonly #nextTurn: (callback: () => void) => void;
  readonly #isOfUse: boolean;
  /** Counts up with each time that the loop is kept turning, and how many calls that is for. */
  #wait = NONE;
  #awaited = 0;
  #untilMs = 0;
  #isTurning = false;
  /** How many calls are made the usual way after the next failure, and how many of them are left now. */
  #skips = 1;
  #skipsLeft = 0;

  constructor(options: StayAwakeOptions = {}) {
    this.#limitMs = options.limitMs ?? LIMIT_MS;
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#nextTurn = options.nextTurn ?? setImmediate;
    this.#isOfUse = (options.processors ?? availableParallelism()) > 1;
  }

  /** A call has been sent. Returns which wait it belongs to, if any. */
  sent(): number {
    if (!this.#isOfUse) return NONE;
    if (this.#skipsLeft > 0) {
      this.#skipsLeft--;
      return NONE;
    }
    if (!this.#isTurning) {
      this.#isTurning = true;
      this.#wait++;
      this.#awaited = 0;
      this.#untilMs = this.#nowMs() + this.#limitMs;
      this.#nextTurn(this.#turn);
    }
    this.#awaited++;
    return this.#wait;
  }

  /**
   * A call of that wait has been answered, or has failed. Answers to calls of a wait that is over came late, and tell nothing of
   * whether the next ones come in time.
   */
  answered(wait: number): void {
    if (!this.#isTurning || wait !== this.#wait) return;
    this.#awaited--;
    this.#skips = 1;
    this.#untilMs = this.#nowMs() + this.#limitMs;
  }

  readonly #turn = () => {
    if (this.#awaited > 0 && this.#nowMs() < this.#untilMs) {
      this.#nextTurn(this.#turn);
      return;
    }
    this.#isTurning = false;
    if (this.#awaited === 0) return;
    this.#skipsLeft = this.#skips;
    this.#skips = Math.min(2 * this.#skips, MOST_SKIPPED);
  };
}
