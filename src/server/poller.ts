/** Repeats a poll of the store while it is needed. A slow store is polled less often. */
import type { Clock } from "../platform/index.ts";

/** The least rest after a poll, as a multiple of its duration: polls take at most a fifth of the time. */
const REST_FACTOR = 4;

export class Poller {
  readonly #clock: Clock;
  readonly #poll: () => Promise<number | undefined>;
  #isRunning = false;
  #isWanted = false;
  #endRest: (() => void) | undefined;

  /** `poll` returns the time of the next poll on the monotonic clock, or undefined if none is needed. It does not reject. */
  constructor(clock: Clock, poll: () => Promise<number | undefined>) {
    this.#clock = clock;
    this.#poll = poll;
  }

  /** Polls now. During a poll, polls again after it. */
  start(): void {
    this.#isWanted = true;
    this.#endRest?.();
    if (!this.#isRunning) void this.#run();
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    for (;;) {
      this.#isWanted = false;
      const startMs = this.#clock.monotonicMs();
      const dueMs = await this.#poll();
      if (this.#isWanted) continue;
      if (dueMs === undefined) break;
      const nowMs = this.#clock.monotonicMs();
      await this.#rest(Math.max(dueMs - nowMs, REST_FACTOR * (nowMs - startMs)));
    }
    this.#isRunning = false;
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel();
        this.#endRest = undefined;
        resolve();
      };
      const timer = this.#clock.setTimer(ms, end);
      this.#endRest = end;
    });
  }
}
