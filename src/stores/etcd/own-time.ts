/**
 * The time where the database has none: this process's own. Nothing that it says means anything to others, so nothing in a
 * record is compared with it but what this process has put there itself.
 */
import type { Clock } from "../../platform/index.ts";
import type { TimeBounds, TimeSource } from "../cas/index.ts";

export class OwnTime implements TimeSource {
  readonly #stamp: () => bigint;
  readonly #maxAgeMs: number;
  /** The wall clock is for people, and may jump; what decides goes on with the monotonic one. */
  readonly #offsetMs: number;
  #heardMs = Number.NEGATIVE_INFINITY;

  /** The database has to have been heard of within `maxAgeMs`, for its stamp. */
  constructor(clock: Clock, stamp: () => bigint, maxAgeMs: number) {
    this.#stamp = stamp;
    this.#maxAgeMs = maxAgeMs;
    this.#offsetMs = clock.wallMs() - clock.monotonicMs();
  }

  add(_serverMs: number, _sentMs: number, receivedMs: number): void {
    this.#heardMs = receivedMs;
  }

  reset(): void {
    // What the database contradicted is its business: it told the driver what is so instead.
  }

  at(nowMs: number): TimeBounds | undefined {
    if (nowMs - this.#heardMs > this.#maxAgeMs) return undefined;
    const ownMs = this.nowMs(nowMs);
    return { lowMs: ownMs, highMs: ownMs, stamp: this.#stamp() };
  }

  /** The time at a moment of the monotonic clock, in whole milliseconds. */
  nowMs(monotonicMs: number): number {
    return Math.floor(this.#offsetMs + monotonicMs);
  }
}
