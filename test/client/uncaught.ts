import { afterEach, beforeEach } from "vitest";

/** Collects the uncaught exceptions of each test of a file, which would otherwise fail the run. */
export function collectUncaught(): readonly unknown[] {
  const uncaught: unknown[] = [];
  let listeners: NodeJS.UncaughtExceptionListener[] = [];

  beforeEach(() => {
    uncaught.length = 0;
    listeners = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", (error) => uncaught.push(error));
  });

  afterEach(() => {
    process.removeAllListeners("uncaughtException");
    for (const listener of listeners) process.on("uncaughtException", listener);
  });

  return uncaught;
}
