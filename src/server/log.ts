/**
 * The log of a server: lines of JSON on the standard output. Somebody reads it, has stopped reading it, or has gone away, as `head` does;
 * none of that is in the way of locks, or of the end of the process.
 */
import { closeSync, constants, fstatSync, openSync, writeSync } from "node:fs";
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
/** How long until a reader that does not read is tried again. */
const RETRY_MS = 50;
/** How long the end waits for somebody to read the last lines. */
const LAST_LINES_MS = 1_000;

/**
 * Opens the log that a server has by default, with a level of pino's.
 *
 * @example
 * const log = openLog("warn");
 * const server = await startServer({ store: memoryStore(), logger: log.logger });
 * await server.stop();
 * await log.close();
 */
export function openLog(level = "info"): Log {
  const lines = new Lines((count) =>
    logger.warn({ lines: count }, "Lines of this log are lost, because its reader was too slow."),
  );
  const logger: Logger = pino({ name: "holdfast", level }, lines);
  let closing: Promise<void> | undefined;
  return {
    logger,
    close() {
      closing ??= lines.close();
      return closing;
    },
  };
}

/** Writes each line at once, so that none is lost however the process ends, and keeps what the reader does not take. */
class Lines {
  readonly #onLost: (count: number) => void;
  readonly #output = openOutput();
  #kept: Buffer[] = [];
  #keptBytes = 0;
  #lostCount = 0;
  #retry: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(onLost: (count: number) => void) {
    this.#onLost = onLost;
  }

  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#isClosed) return;
    if (this.#keptBytes + bytes.length > MOST_BYTES) {
      this.#lostCount++;
      return;
    }
    this.#kept.push(bytes);
    this.#keptBytes += bytes.length;
    if (this.#retry === undefined) this.#flush();
  }

  async close(): Promise<void> {
    for (let waitedMs = 0; this.#keptBytes > 0 && waitedMs < LAST_LINES_MS; waitedMs += RETRY_MS) {
      await sleep(RETRY_MS);
    }
    this.#isClosed = true;
    clearTimeout(this.#retry);
    if (this.#output.isOwn) closeSync(this.#output.fd);
  }

  #flush(): void {
    this.#retry = undefined;
    const bytes = Buffer.concat(this.#kept);
    const rest = bytes.subarray(writeSome(this.#output.fd, bytes));
    this.#kept = rest.length > 0 ? [rest] : [];
    this.#keptBytes = rest.length;
    if (rest.length > 0) {
      this.#retry = setTimeout(() => this.#flush(), RETRY_MS).unref();
    } else if (this.#lostCount > 0) {
      const count = this.#lostCount;
      this.#lostCount = 0;
      this.#onLost(count);
    }
  }
}

/** How many bytes need not be kept. What fails may succeed later, as when a disk is full, unless the reader is gone for good. */
function writeSome(fd: number, bytes: Buffer): number {
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPIPE" ? bytes.length : 0;
  }
}

/**
 * The standard output, in a form that never waits for its reader. A terminal and a pipe are opened once more for that; Node itself
 * sees to sockets, when it is asked for its output, and files have no reader. Where a terminal cannot be opened so, as on macOS, one that is
 * stopped holds up whoever writes to it.
 */
function openOutput(): { readonly fd: number; readonly isOwn: boolean } {
  const fd = process.stdout.fd ?? 1;
  try {
    const output = fstatSync(fd);
    if (!output.isCharacterDevice() && !output.isFIFO()) return { fd, isOwn: false };
    const { O_WRONLY, O_NONBLOCK, O_NOCTTY } = constants;
    return { fd: openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_NONBLOCK | O_NOCTTY), isOwn: true };
  } catch {
    return { fd, isOwn: false };
  }
}
