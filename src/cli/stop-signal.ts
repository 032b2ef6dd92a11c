/** The signals by which people and service managers end a command. */
import { constants } from "node:os";
import { exitCodes } from "./exit-codes.ts";

export interface StopSignal {
  /** Aborts with the first of the signals. */
  readonly signal: AbortSignal;
  /** The number of that signal; 0 before. */
  number(): number;
  /** From now on the signals are somebody else's. */
  forget(): void;
}

const stopSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** A terminal signals everything that runs in it, and so does a parent that passes signals on: these two are one. */
const SAME_MS = 500;

/** The first signal asks to end; the second one ends the process at once. */
export function stopSignal(signals: readonly NodeJS.Signals[] = stopSignals): StopSignal {
  const controller = new AbortController();
  let first = 0;
  let firstMs = 0;
  const listeners = signals.map((name) => {
    const number = constants.signals[name];
    const listener = () => {
      if (first !== 0) {
        if (performance.now() - firstMs > SAME_MS) process.exit(exitCodes.signal + number);
        return;
      }
      first = number;
      firstMs = performance.now();
      controller.abort(new Error(`Stopped by ${name}.`));
    };
    process.on(name, listener);
    return { name, listener };
  });
  return {
    signal: controller.signal,
    number: () => first,
    forget() {
      for (const { name, listener } of listeners) process.off(name, listener);
    },
  };
}
