/**
 * The log of a server: lines of JSON on the standard output. Somebody reads it, has stopped reading it, or has gone away, as `head` does;
 * none of that is in the way of locks, or of the end of the process.
 */
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type Logger, pino } from "pino";

/** A logger, and what ends it. */
export interface Log {
  readonly logger: Logger;
  /** Resolves when everything is written, or nobody seems to read it. What is logged after that is lost. */
  close(): Promise<void>;
}

/** How much is kept for a reader that does not read. What comes after that is lost. */
const MOST_BYTES = 1_048_576;
/** How long the end waits for somebody to read the last lines. */
const LAST_LINES_MS = 1_000;

/**
 * Opens the log that a server has by default, with a level of pino's.
 *
 * @example
 * const log = openLog("warn");
 * const server = await startServer({ store: memoryStore(), logger: log.logger });
 */
export function openLog(level = "info"): Log {
  let isOver = false;
  const stream = pino.destination({
    dest: process.stdout.fd ?? 1,
    sync: false,
    maxLength: MOST_BYTES,
    retryEAGAIN: () => !isOver,
  });
  let isBroken = false;
  stream.on("error", () => {
    isBroken = true;
  });
  // When the process exits, pino would write what is left until all of it is written, in a loop that nothing but SIGKILL ends.
  stream.flushSync = () => {};
  return {
    logger: pino({ name: "holdfast", level }, stream),
    async close() {
      const written = once(stream, "close").catch(() => {});
      if (!isBroken) stream.end();
      stream.write = () => true;
      if (!isBroken) await Promise.race([written, sleep(LAST_LINES_MS)]);
      isOver = true;
    },
  };
}
