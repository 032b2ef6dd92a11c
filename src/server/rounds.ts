/** Work that is repeated while there is some: at a given pace, or more slowly if it takes long. */
import type { Clock } from "../platform/index.ts";

/** How long the work rests at least, by how long it took: it takes up at most a fifth of the time. */
const REST_SHARE = 4;

export interface RoundsOptions {
  readonly clock: Clock;
  /** One round. Returns when the next one is due, on the monotonic clock; undefined if there is nothing to do. It does not reject. */
  work(): Promise<number | undefined>;
}

export class Rounds {
  readonly #options: RoundsOptions;
  #running = false;
  #wanted = false;
  #endRest: (() => void) | undefined;

  constructor(options: RoundsOptions) {
    this.#options = options;
  }

  /** There is something to do now: begins, or ends the rest. */
  start(): void {
    this.#wanted = true;
    this.#endRest?.();
    if (!this.#running) void this.#run();
  }

  async #run(): Promise<void> {
    const { clock, work } = this.#options;
    this.#running = true;
    for (;;) {
      this.#wanted = false;
      const startMs = clock.monotonicMs();
      const dueMs = await work();
      if (this.#wanted) continue;
      if (dueMs === undefined) break;
      const nowMs = clock.monotonicMs();
      await this.#rest(Math.max(dueMs - nowMs, REST_SHARE * (nowMs - startMs)));
    }
    this.#running = false;
  }

  #rest(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#options.clock.setTimer(ms, () => end());
      const end = () => {
        timer.cancel();
        this.#endRest = undefined;
        resolve();
      };
      this.#endRest = end;
    });
  }
}
