/**
 * Spreads work for many streams over turns of the event loop, so that other requests are served in between. Thousands of streams that each have
 * one event to send would otherwise send all of them before the next request is read.
 */

/** How much is done in one turn of the event loop. A unit is an event of a stream: some 50 µs. */
const UNITS = 32;

interface Waiting {
  readonly units: number;
  readonly resolve: () => void;
}

export class Turns {
  #waiting: Waiting[] = [];
  /** Those of `#waiting` before this had their turn. */
  #done = 0;
  #left = UNITS;
  #scheduled = false;

  /** Resolves when there is time for so much work: at once, or in a later turn of the event loop, in the order of asking. */
  async take(units = 1): Promise<void> {
    this.#schedule();
    if (this.#left > 0 && this.#waiting.length === 0) {
      this.#left -= units;
      return;
    }
    await new Promise<void>((resolve) => this.#waiting.push({ units, resolve }));
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    // Work that was larger than a turn takes up those that follow.
    this.#left = Math.min(UNITS, this.#left + UNITS);
    while (this.#left > 0 && this.#done < this.#waiting.length) {
      const { units, resolve } = this.#waiting[this.#done++] as Waiting;
      this.#left -= units;
      resolve();
    }
    if (this.#done === this.#waiting.length) {
      this.#waiting = [];
      this.#done = 0;
    }
    if (this.#waiting.length > 0 || this.#left < 0) this.#schedule();
  }
}
