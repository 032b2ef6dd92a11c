/** The log of a server: lines of JSON on the standard output. A reader that stops reading or exits does not block the server. */
import { closeSync, constants, fstatSync, openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type Logger, pino } from "pino";

export interface Log {
  readonly logger: Logger;
  /** Resolves when everything is written, or after a second without a reader. Later lines are lost. */
  close(): Promise<void>;
}

/** The buffer for a slow reader. Lines beyond it are lost. */
const MAX_BUFFER_BYTES = 1_048_576;
const RETRY_MS = 50;
const CLOSE_TIMEOUT_MS = 1_000;

/**
 * Opens the default log of a server, with a level of pino.
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

/** Writes each line at once, so that a crash loses none. Buffers the lines that the reader does not take. */
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
    if (this.#keptBytes + bytes.length > MAX_BUFFER_BYTES) {
      this.#lostCount++;
      return;
    }
    this.#kept.push(bytes);
    this.#keptBytes += bytes.length;
    if (this.#retry === undefined) this.#flush();
  }

  async close(): Promise<void> {
    for (let waitedMs = 0; this.#keptBytes > 0 && waitedMs < CLOSE_TIMEOUT_MS; waitedMs += RETRY_MS) {
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

/** Returns the number of bytes that are done: written, or lost with a reader that has exited. Other failures are retried. */
function writeSome(fd: number, bytes: Buffer): number {
  try {
    return writeSync(fd, bytes);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPIPE" ? bytes.length : 0;
  }
}

/**
 * Opens the standard output so that writes never block. Terminals and pipes are opened again without blocking; Node does that for
 * sockets. On macOS, which has no /proc, a stopped terminal blocks the writer.
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
