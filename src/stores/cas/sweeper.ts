/**
 * Removes records that nobody has used for a while, in batches.
 *
 * Every record says until when it must be kept, and the driver removes those whose time has passed by the server's clock. A
 * process asks it to some time after it has left a record without claims. So whoever uses locks cleans up, for those that
 * crashed as well, and where nobody does, nothing grows.
 */
import type { Clock, Timer } from "../../core/index.ts";

/** Records in one sweep, so that none holds up others for long. */
const SWEPT_AT_ONCE = 1_000;
/** How soon the next sweep follows when there was more than one could take. */
const NEXT_MS = 1_000;
/** By how much a record may have to be kept for longer, because the server's time is not known exactly. */
const SLACK_MS = 1_000;

export class Sweeper {
  readonly #sweepSome: ((limit: number) => Promise<number>) | undefined;
  readonly #clock: Clock;
  readonly #afterMs: number;
  #timer: Timer | undefined;
  #isSweeping = false;
  /** When a record was last left. */
  #expectedAtMs = Number.NEGATIVE_INFINITY;
  #closed = false;

  /** Sweeps so long after there was something to be swept. */
  constructor(sweepSome: ((limit: number) => Promise<number>) | undefined, clock: Clock, afterMs: number) {
    this.#sweepSome = sweepSome;
    this.#clock = clock;
    this.#afterMs = afterMs + SLACK_MS;
  }

  /** A record was left that will be of no use. */
  expect(): void {
    this.#expectedAtMs = this.#clock.monotonicMs();
    this.#schedule(this.#afterMs);
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  #schedule(delayMs: number): void {
    if (this.#closed || this.#sweepSome === undefined || this.#timer !== undefined || this.#isSweeping)
      return;
    this.#timer = this.#clock.setTimer(delayMs, () => {
      this.#timer = undefined;
      void this.#sweep();
    });
  }

  async #sweep(): Promise<void> {
    this.#isSweeping = true;
    const startMs = this.#clock.monotonicMs();
    const removed = await this.#ask();
    this.#isSweeping = false;
    if (removed === SWEPT_AT_ONCE) this.#schedule(NEXT_MS);
    // What was left less than that long ago was too young for this sweep.
    else if (removed === undefined || this.#expectedAtMs + this.#afterMs > startMs)
      this.#schedule(this.#afterMs);
  }

  /** Undefined where it failed: an outage is told to whoever asks for something, and the next sweep does as well. */
  async #ask(): Promise<number | undefined> {
    try {
      return await this.#sweepSome?.(SWEPT_AT_ONCE);
    } catch {
      return undefined;
    }
  }
}
