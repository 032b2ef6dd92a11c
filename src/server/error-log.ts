/** Counts every error in the metrics, and logs each kind at most once in 10 s: an outage fails thousands of operations a second. */
import type { Logger } from "pino";
import { HoldfastError } from "../store/index.ts";
import type { Audit } from "./audit.ts";
import type { Requester } from "./callers.ts";
import { countUp, type Metrics } from "./metrics.ts";

const LOG_INTERVAL_MS = 10_000;

/** Errors of the store. Errors of requests are only sent to their callers. */
const storeCodes = ["STORE_UNAVAILABLE", "STORE_FAILURE"];

export class ErrorLog {
  readonly #logger: Logger;
  readonly #metrics: Metrics;
  readonly #audit: Audit;
  readonly #rate = new LogRate(LOG_INTERVAL_MS);
  #isStopped = false;

  constructor(logger: Logger, metrics: Metrics, audit: Audit) {
    this.#logger = logger;
    this.#metrics = metrics;
    this.#audit = audit;
  }

  /** An operation or a call failed. Refusals for lack of rights also go to the audit log. */
  failed(error: unknown, requester: Partial<Requester> = {}): void {
    const isKnown = error instanceof HoldfastError;
    const code = isKnown ? error.code : "STORE_FAILURE";
    countUp(this.#metrics.errors, code);
    this.#audit.failed(error, requester);
    if (this.#isStopped || !storeCodes.includes(code)) return;
    const times = this.#rate.add(code, performance.now());
    // Messages of Holdfast name keys, which do not belong into the log.
    const err = loggable(isKnown ? error.cause : error);
    if (times > 0) this.#logger.error({ code, times, err }, "the store fails");
  }

  /** A call ended with an error that no part of the server expects. */
  unexpected(error: unknown): void {
    countUp(this.#metrics.errors, "UNEXPECTED");
    const times = this.#rate.add("unexpected", performance.now());
    if (times > 0) this.#logger.error({ times, err: loggable(error) }, "a call failed unexpectedly");
  }

  /** The server cut a client off. */
  dropped(reason: string): void {
    countUp(this.#metrics.dropped, reason);
    const times = this.#rate.add(`dropped ${reason}`, performance.now());
    if (times > 0) this.#logger.warn({ reason, times }, "cut clients off");
  }

  /** Stops logging of failures: a server that stops refuses callers, which is no fault of the store. */
  stop(): void {
    this.#isStopped = true;
  }
}

/** Limits how often each kind of event is logged. The kinds must be few and fixed: clients must not choose them. */
export class LogRate {
  readonly #intervalMs: number;
  readonly #kinds = new Map<string, { loggedMs: number; times: number }>();

  constructor(intervalMs: number) {
    this.#intervalMs = intervalMs;
  }

  /** Returns the number of events since the last logged one, or 0 if the interval is not over. */
  add(kind: string, nowMs: number): number {
    const known = this.#kinds.get(kind) ?? { loggedMs: Number.NEGATIVE_INFINITY, times: 0 };
    this.#kinds.set(kind, known);
    known.times++;
    if (nowMs - known.loggedMs < this.#intervalMs) return 0;
    const { times } = known;
    known.loggedMs = nowMs;
    known.times = 0;
    return times;
  }
}

/** The loggable part of an error. Drivers attach the failed command with its arguments, which contain tokens of claims. */
export function loggable(error: unknown): object | undefined {
  if (error === undefined) return undefined;
  if (!(error instanceof Error)) return { type: typeof error };
  const { name, message, stack } = error;
  const { code } = error as { code?: unknown };
  return { type: name, message, stack, ...(typeof code === "string" && { code }) };
}
