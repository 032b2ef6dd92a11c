import { performance } from "node:perf_hooks";

/** A timer that was set and can be taken back. */
export interface Timer {
  cancel(): void;
  /** Whether this timer alone keeps the process alive. Timers start out not doing so. */
  keepAlive(on: boolean): void;
}

/** Where time comes from. Tests and simulations bring their own, and so own time. */
export interface Clock {
  /** Milliseconds since 1970, for people to read. Never decides anything: it may be wrong and may jump. */
  wallMs(): number;
  /** Milliseconds that only grow, from an arbitrary start. Deadlines are kept on this one. */
  monotonicMs(): number;
  /** Calls back once, `delayMs` from now or a little later, never earlier. */
  setTimer(delayMs: number, callback: () => void): Timer;
}

/** The clock of this machine. (The global `performance` is the same, behind a getter that costs a quarter of a look at it.) */
export const systemClock: Clock = {
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  setTimer(delayMs, callback) {
    // Node rounds a delay down to whole milliseconds, which would make the callback early.
    const timeout = setTimeout(callback, Math.ceil(delayMs)).unref();
    return {
      cancel: () => clearTimeout(timeout),
      keepAlive: (on) => void (on ? timeout.ref() : timeout.unref()),
    };
  },
};
