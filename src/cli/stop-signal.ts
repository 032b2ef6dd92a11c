/** The signals of people and service managers that end a command. */
import { constants } from "node:os";
import { exitCodes } from "./exit-codes.ts";

export interface StopSignal {
  /** Aborts with the first of the signals. */
  readonly signal: AbortSignal;
  /** The number of that signal, or 0 before it. */
  number(): number;
  /** Stops listening for the signals. */
  forget(): void;
}

const stopSignals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Signals within this time count as one: a terminal and a parent process may both send it. */
const DUPLICATE_MS = 500;

/** The first signal aborts `signal`; a second one ends the process at once. */
export function stopSignal(signals: readonly NodeJS.Signals[] = stopSignals): StopSignal {
  const controller = new AbortController();
  let first = 0;
  let firstMs = 0;
  const listeners = signals.map((name) => {
    const number = constants.signals[name];
    const listener = () => {
      if (first !== 0) {
        if (performance.now() - firstMs > DUPLICATE_MS) process.exit(exitCodes.signal + number);
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
