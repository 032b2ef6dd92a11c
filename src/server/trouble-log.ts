/**
 * Tells whoever reads the log of trouble, once in a while: in an outage every operation fails, thousands a second, and whoever means no
 * good is cut off as often as he likes. The metrics count them all.
 */
import type { Logger } from "pino";
import { HoldfastError } from "../store/index.ts";
import { Seldom } from "./seldom.ts";

/** How often the same is told at most. */
const EVERY_MS = 10_000;

/** Errors that lie in the store. Those of requests are told to whoever made them. */
const storeCodes = ["STORE_UNAVAILABLE", "STORE_FAILURE"];

export class TroubleLog {
  readonly #logger: Logger;
  readonly #failures = new Seldom(EVERY_MS);
  readonly #drops = new Seldom(EVERY_MS);
  #stopped = false;

  constructor(logger: Logger) {
    this.#logger = logger;
  }

  /** An operation or a call has failed. */
  failed(error: unknown): void {
    const isOurs = error instanceof HoldfastError;
    if (this.#stopped || (isOurs && !storeCodes.includes(error.code))) return;
    const code = isOurs ? error.code : "STORE_FAILURE";
    const times = this.#failures.add(code, performance.now());
    // Our own messages name the key, so it is the cause that is told.
    const err = loggable(isOurs ? error.cause : error);
    if (times > 0) this.#logger.error({ code, times, err }, "the store fails");
  }

  /** A call failed for a reason that no part of the server expects. */
  unexpected(error: unknown): void {
    const times = this.#failures.add("UNEXPECTED", performance.now());
    if (times > 0) this.#logger.error({ times, err: loggable(error) }, "a call failed unexpectedly");
  }

  /** A client was cut off. */
  dropped(reason: string): void {
    const times = this.#drops.add(reason, performance.now());
    if (times > 0) this.#logger.warn({ reason, times }, "cut clients off");
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
