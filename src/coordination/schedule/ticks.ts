/** The moments that a cron pattern names, in a time zone. Croner computes them; its timers are not used. */
import { Cron } from "croner";
import { invalid } from "../../store/index.ts";

export const SECOND_MS = 1_000;

/** Ticks are whole seconds, in milliseconds since 1970. Everybody who asks about the same moments gets the same ticks. */
export class Ticks {
  readonly #cron: Cron;

  /** Throws `INVALID_ARGUMENT` for what is no pattern, names no moment, or is not the same for every replica. */
  constructor(pattern: string, timezone: string) {
    this.#cron = parsed(pattern, timezone);
    if (this.after(0) === undefined) throw invalid(`cron "${pattern}" matches no date. Correct the pattern.`);
  }

  /** The first tick after a moment. */
  after(ms: number): number | undefined {
    return this.#cron.nextRun(new Date(ms))?.getTime();
  }

  /** The first ticks after one moment and up to another, at most so many. */
  first(afterMs: number, untilMs: number, most: number): number[] {
    const found: number[] = [];
    let tickMs = this.after(afterMs);
    while (tickMs !== undefined && tickMs <= untilMs && found.length < most) {
      found.push(tickMs);
      tickMs = this.after(tickMs);
    }
    return found;
  }

  /** The last ticks after one moment and up to another, at most so many, the oldest first. */
  last(afterMs: number, untilMs: number, most: number): number[] {
    const found: number[] = [];
    if (untilMs <= afterMs) return found;
    // What croner gets is cut to the second, and it answers with what lies before that.
    let beforeMs = (Math.floor(untilMs / SECOND_MS) + 1) * SECOND_MS;
    while (found.length < most) {
      const tickMs = this.#cron.previousRuns(1, new Date(beforeMs))[0]?.getTime();
      if (tickMs === undefined || tickMs <= afterMs) break;
      found.push(tickMs);
      beforeMs = tickMs;
    }
    return found.reverse();
  }
}

function parsed(pattern: string, timezone: string): Cron {
  if (typeof pattern !== "string") throw invalid(`cron must be a string, not ${typeof pattern}.`);
  if (typeof timezone !== "string" || timezone === "") {
    throw invalid(`timezone must be a name such as "Europe/Berlin", not ${JSON.stringify(timezone)}.`);
  }
  // Croner puts the time at which it reads the pattern in its place, and that is another one on every replica.
  if (pattern.includes("?")) throw invalid(`cron "${pattern}" must not contain "?": use "*" instead.`);
  let cron: Cron;
  try {
    cron = new Cron(pattern, { paused: true });
  } catch (cause) {
    throw invalid(`cron must be a pattern such as "0 3 * * *", not "${pattern}": ${reasonOf(cause)}`);
  }
  if (cron.getPattern() === undefined) {
    throw invalid(`cron must be a pattern such as "0 3 * * *", not the date "${pattern}".`);
  }
  try {
    new Intl.DateTimeFormat("en", { timeZone: timezone });
  } catch {
    throw invalid(`timezone must be a name such as "Europe/Berlin" that this Node knows, not "${timezone}".`);
  }
  return new Cron(pattern, { paused: true, timezone });
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
