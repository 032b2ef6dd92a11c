/**
 * Removes records that nobody has used for a while, in batches.
 *
 * Every record says until when it must be kept, and the driver removes those whose time has passed by the server's clock. A
 * process asks it to now and then, until the last record that it has written is old enough. So whoever uses locks cleans up, for those
 * that crashed as well, and where nobody does, nothing grows.
 *
 * Processes that live for less than that would never get to it. So each asks once before, at a moment that is left to chance: of many that
 * live for a second, some do.
 */
import type { Clock, Timer } from "../../platform/index.ts";

/** Records in one sweep, so that none holds up others for long. */
const SWEPT_AT_ONCE = 1_000;
/**
 * From so many on, there may be more. A driver removes fewer than it has found where some were used again meanwhile, or where other
 * processes sweep the same ones at the same time and each gets its part.
 */
const MORE_FROM = SWEPT_AT_ONCE / 10;
/** By how much a record may have to be kept for longer, because the server's time is not known exactly. */
const SLACK_MS = 1_000;
/** By which part of the pause before a sweep chance prolongs it, or processes that start together would all sweep at once for ever. */
const SPREAD = 0.5;
/** The longest rest between two sweeps. What seems to have taken longer was a machine that slept. */
const MAX_REST_MS = 1_000;

export class Sweeper {
  readonly #sweepSome: ((limit: number) => Promise<number>) | undefined;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #afterMs: number;
  #timer: Timer | undefined;
  #early: Timer | undefined;
  #isSweeping = false;
  /** When all that was written here can be removed, unless it is used again. */
  #oldFromMs = Number.NEGATIVE_INFINITY;
  #closed = false;

  /** Sweeps so long after something was written, or up to half as long again, and then again until that is gone. */
  constructor(
    sweepSome: ((limit: number) => Promise<number>) | undefined,
    clock: Clock,
    random: () => number,
    afterMs: number,
  ) {
    this.#sweepSome = sweepSome;
    this.#clock = clock;
    this.#random = random;
    this.#afterMs = afterMs + SLACK_MS;
  }

  /** Records were written, the last of which has to be kept for so long. */
  expect(keepMs: number): void {
    if (this.#sweepSome === undefined || this.#closed) return;
    this.#oldFromMs = Math.max(this.#oldFromMs, this.#clock.monotonicMs() + keepMs + SLACK_MS);
    this.#schedule();
    this.#early ??= this.#clock.setTimer(this.#random() * this.#afterMs, () => void this.#sweep());
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
    this.#early?.cancel();
  }

  #schedule(): void {
    if (this.#closed || this.#timer !== undefined) return;
    this.#timer = this.#clock.setTimer(this.#afterMs * (1 + SPREAD * this.#random()), () => {
      this.#timer = undefined;
      void this.#sweep();
    });
  }

  async #sweep(): Promise<void> {
    // Whatever is old enough for this one is so for the other.
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    const startMs = this.#clock.monotonicMs();
    let removed: number | undefined;
    do removed = await this.#askAndRest();
    while (mayBeMore(removed) && !this.#closed);
    this.#isSweeping = false;
    // What has to be kept for longer was too young for this sweep.
    if (removed === undefined || this.#oldFromMs > startMs) this.#schedule();
  }

  /** Where there is more than one sweep can take, this process leaves half of the time to others, however much there is. */
  async #askAndRest(): Promise<number | undefined> {
    const startMs = this.#clock.monotonicMs();
    const removed = await this.#ask();
    if (!mayBeMore(removed)) return removed;
    const tookMs = Math.min(this.#clock.monotonicMs() - startMs, MAX_REST_MS);
    await new Promise<void>((resolve) => {
      this.#clock.setTimer(tookMs, resolve);
    });
    return removed;
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

function mayBeMore(removed: number | undefined): boolean {
  return removed !== undefined && removed >= MORE_FROM;
}
