import { onAbort } from "./abort-listeners.ts";
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
      listenNoMore?.();
      resolve();
    };
    const timer = clock.setTimer(delayMs, end);
    timer.keepAlive(keepAlive);
    const listenNoMore = signal === undefined ? undefined : onAbort(signal, end);
  });
}
