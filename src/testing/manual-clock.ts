import type { Clock, Timer } from "../platform/index.ts";

interface PendingTimer {
  readonly atMs: number;
  readonly order: number;
  readonly callback: () => void;
}

/**
 * A clock that stands still until told to go on, so that a test owns time instead of sleeping.
 *
 * @example
 * const clock = new ManualClock();
 * const locks = createLocks(memoryStore({ clock }), { clock });
 * const lease = await locks.mutex("report", { renew: false }).acquire();
 * await clock.advance(30_000);
 * lease.held; // false
 */
export class ManualClock implements Clock {
  readonly #timers = new Set<PendingTimer>();
  #elapsedMs = 0;
  #wallOffsetMs: number;
  #order = 0;

  /** Starts at a wall time. The monotonic time starts elsewhere, so that mixing them up shows. */
  constructor(startWallMs = Date.UTC(2030, 0, 1)) {
    this.#wallOffsetMs = startWallMs;
  }

  wallMs(): number {
    return this.#wallOffsetMs + this.#elapsedMs;
  }

  monotonicMs(): number {
    return 1_000 + this.#elapsedMs;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer: PendingTimer = {
      atMs: this.#elapsedMs + Math.max(0, delayMs),
      order: this.#order++,
      callback,
    };
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer), keepAlive: () => {} };
  }

  /** How many timers are set. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Lets time pass: timers fire in order, each followed by whatever it set in motion. */
  async advance(byMs: number): Promise<void> {
    const untilMs = this.#elapsedMs + byMs;
    await settled();
    for (let next = this.#next(untilMs); next !== undefined; next = this.#next(untilMs)) {
      this.#timers.delete(next);
      this.#elapsedMs = Math.max(this.#elapsedMs, next.atMs);
      next.callback();
      await settled();
    }
    // A timer may have blocked for longer than this, and time never goes back.
    this.#elapsedMs = Math.max(this.#elapsedMs, untilMs);
  }

  /** Lets time pass while nothing runs, as when the event loop is blocked or the process is stopped. */
  block(byMs: number): void {
    this.#elapsedMs += byMs;
  }

  /** Sets the wall clock, as an administrator would. The monotonic time goes on as before. */
  setWall(wallMs: number): void {
    this.#wallOffsetMs = wallMs - this.#elapsedMs;
  }

  #next(untilMs: number): PendingTimer | undefined {
    let first: PendingTimer | undefined;
    for (const timer of this.#timers) {
      if (timer.atMs > untilMs) continue;
      if (
        first === undefined ||
        timer.atMs < first.atMs ||
        (timer.atMs === first.atMs && timer.order < first.order)
      ) {
        first = timer;
      }
    }
    return first;
  }
}

/** Resolves when everything that promises have set in motion has run. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
