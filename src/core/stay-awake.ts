/**
 * Keeps the event loop turning while the answer of a server nearby is about to come.
 *
 * A process without anything to do is put to sleep by the kernel, and to be woken takes it longer than such a server needs for its
 * answer: tens of microseconds on a virtual machine. So for a moment it is better not to go to sleep. Whatever else the process
 * has to do is done in the turns meanwhile; what is spent is processor time, up to `LIMIT_MS` a call. Where answers take longer
 * than that, as over most networks, it would be spent for nothing: each time that one did not come in time, twice as many calls as
 * before are made the usual way before it is tried again.
 */
import { availableParallelism } from "node:os";

/** How long it is worth to wait. A server on the same machine answers a call, also one of a hundred operations, in less. */
const LIMIT_MS = 0.25;

/** The most calls that are made the usual way in between. */
const MOST_SKIPPED = 1_024;

export interface StayAwakeOptions {
  readonly nowMs?: () => number;
  /** Calls back in the next turn of the event loop. */
  readonly nextTurn?: (callback: () => void) => void;
  /** With one alone, this process would keep the server from working. */
  readonly processors?: number;
}

export class StayAwake {
  readonly #nowMs: () => number;
  readonly #nextTurn: (callback: () => void) => void;
  readonly #isOfUse: boolean;
  #underWay = 0;
  #untilMs = 0;
  #isTurning = false;
  /** How many calls are made the usual way after the next failure, and how many of them are left now. */
  #skips = 1;
  #skipsLeft = 0;

  constructor(options: StayAwakeOptions = {}) {
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#nextTurn = options.nextTurn ?? setImmediate;
    this.#isOfUse = (options.processors ?? availableParallelism()) > 1;
  }

  /** A call has been sent. */
  sent(): void {
    this.#underWay++;
    if (!this.#isOfUse) return;
    if (this.#skipsLeft > 0) {
      this.#skipsLeft--;
      return;
    }
    this.#untilMs = this.#nowMs() + LIMIT_MS;
    if (this.#isTurning) return;
    this.#isTurning = true;
    this.#nextTurn(this.#turn);
  }

  /** A call has been answered, or has failed. */
  answered(): void {
    this.#underWay--;
    if (this.#isTurning) this.#skips = 1;
  }

  readonly #turn = () => {
    if (this.#underWay > 0 && this.#nowMs() < this.#untilMs) {
      this.#nextTurn(this.#turn);
      return;
    }
    this.#isTurning = false;
    if (this.#underWay === 0) return;
    this.#skipsLeft = this.#skips;
    this.#skips = Math.min(2 * this.#skips, MOST_SKIPPED);
  };
}
