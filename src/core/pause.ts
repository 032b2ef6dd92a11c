import type { Clock } from "./clock.ts";

/** Resolves after a while, or as soon as the signal aborts. Keeps the process alive only where that is asked for. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal, keepAlive = false): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve();
      return;
    }
    const end = () => {
      timer.cancel();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = clock.setTimer(delayMs, end);
    timer.keepAlive(keepAlive);
    signal?.addEventListener("abort", end, { once: true });
  });
}
