/**
 * Tells whoever reads the log that the store fails, once in a while: in an outage every operation fails, thousands a second, and
 * `holdfast_errors_total` counts them all.
 */
import type { Logger } from "pino";
import { HoldfastError } from "../core/index.ts";

/** How often the same trouble is told at most. */
const EVERY_MS = 10_000;

/** Errors that lie in the store. Those of requests are told to whoever made them. */
const storeCodes = ["STORE_UNAVAILABLE", "STORE_FAILURE"];

interface Trouble {
  toldMs: number;
  /** How often since it was last told. */
  times: number;
}

export class TroubleLog {
  readonly #logger: Logger;
  readonly #troubles = new Map<string, Trouble>();
  #stopped = false;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  add(error: unknown): void {
    const isOurs = error instanceof HoldfastError;
    if (this.#stopped || (isOurs && !storeCodes.includes(error.code))) return;
    const code = isOurs ? error.code : "STORE_FAILURE";
    const trouble = this.#troubles.get(code) ?? { toldMs: Number.NEGATIVE_INFINITY, times: 0 };
    this.#troubles.set(code, trouble);
    trouble.times++;
    const nowMs = performance.now();
    if (nowMs - trouble.toldMs < EVERY_MS) return;
    // Our own messages name the key, so it is the cause that is told.
    this.#logger.error(
      { code, times: trouble.times, err: loggable(isOurs ? error.cause : error) },
      "the store fails",
    );
    trouble.toldMs = nowMs;
    trouble.times = 0;
  }

  /** A server that stops turns its callers away, which is not the store's fault. */
  stop(): void {
    this.#stopped = true;
  }
}

/**
 * What of an error may be logged. Drivers hang the command that failed on their errors, with its arguments, and among those are
 * the tokens of claims.
 */
export function loggable(error: unknown): object | undefined {
  if (error === undefined) return undefined;
  if (!(error instanceof Error)) return { type: typeof error };
  const { name, message, stack } = error;
  const { code } = error as { code?: unknown };
  return { type: name, message, stack, ...(typeof code === "string" && { code }) };
}
