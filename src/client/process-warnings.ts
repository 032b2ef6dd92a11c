/**
 * Warnings of a client as process warnings. A bug or an outage may meet a hundred thousand leases at once, and nobody reads as many
 * lines: the first few of a kind are told one by one, and from then on how many there were.
 */
import type { Clock } from "../platform/index.ts";
import type { HoldfastWarning } from "./options.ts";

type Code = HoldfastWarning["code"];

/** How many of a kind are told one by one. */
const ONE_BY_ONE = 5;

/** How often the number of the others is told, and for how long none may come until they are told one by one again. */
const SUMMARY_EVERY_MS = 10_000;

export class ProcessWarnings {
  readonly #clock: Clock;
  /** The kinds that have come lately: how many were told one by one, and how many nobody was told of yet. */
  readonly #recent = new Map<Code, { told: number; untold: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  emit({ code, message }: HoldfastWarning): void {
    const recent = this.#recent.get(code) ?? this.#begin(code);
    if (recent.told === ONE_BY_ONE) {
      recent.untold++;
      return;
    }
    recent.told++;
    emitWarning(code, message);
  }

  #begin(code: Code): { told: number; untold: number } {
    const recent = { told: 0, untold: 0 };
    this.#recent.set(code, recent);
    this.#summarizeLater(code, recent);
    return recent;
  }

  #summarizeLater(code: Code, recent: { untold: number }): void {
    this.#clock.setTimer(SUMMARY_EVERY_MS, () => {
      const { untold } = recent;
      if (untold === 0) {
        this.#recent.delete(code);
        return;
      }
      recent.untold = 0;
      emitWarning(
        code,
        `${untold} more of these warnings in ${SUMMARY_EVERY_MS / 1_000} s. Set onWarning to receive each of them.`,
      );
      this.#summarizeLater(code, recent);
    });
  }
}

function emitWarning(code: Code, message: string): void {
  process.emitWarning(message, { type: "HoldfastWarning", code });
}
