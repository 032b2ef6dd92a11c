/** Spreads work over turns of the event loop, so that thousands of streams with an event each do not delay other requests. */

/** The work of one turn. A unit is an event of a stream, which takes some 50 µs. */
const UNITS_PER_TURN = 32;

interface Waiting {
  readonly units: number;
  readonly resolve: () => void;
}

export class Scheduler {
  #waiting: Waiting[] = [];
  /** The number of resolved entries at the beginning of `#waiting`. */
  #resolved = 0;
  #unitsLeft = UNITS_PER_TURN;
  #isScheduled = false;

  /** Resolves at once or in a later turn of the event loop, in the order of the calls. */
  async take(units = 1): Promise<void> {
    this.#schedule();
    if (this.#unitsLeft > 0 && this.#waiting.length === 0) {
      this.#unitsLeft -= units;
      return;
    }
    await new Promise<void>((resolve) => this.#waiting.push({ units, resolve }));
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#isScheduled = false;
    // Work that is larger than a turn uses up the turns after it.
    this.#unitsLeft = Math.min(UNITS_PER_TURN, this.#unitsLeft + UNITS_PER_TURN);
    while (this.#unitsLeft > 0 && this.#resolved < this.#waiting.length) {
      const { units, resolve } = this.#waiting[this.#resolved++] as Waiting;
      this.#unitsLeft -= units;
      resolve();
    }
    if (this.#resolved === this.#waiting.length) {
      this.#waiting = [];
      this.#resolved = 0;
    }
    if (this.#waiting.length > 0 || this.#unitsLeft < 0) this.#schedule();
  }
}
