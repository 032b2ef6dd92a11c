/** Which ticks a replica has to see to, by its own wall clock and by the policy for those that were missed. */
import type { ScheduleSettings } from "./schedule-options.ts";
import type { Ticks } from "./ticks.ts";

/** How many ticks in time are begun at once, and how many missed ones are counted. */
const MAX_DUE = 1_000;

export interface Due {
  /** Those that are in time. The oldest first. */
  readonly ticks: readonly number[];
  /** Those that were missed and are to run all the same, one after the other. The oldest first. */
  readonly late: readonly number[];
  /** How many were left out as missed, as far as they were counted. */
  readonly missed: number;
}

const NEVER = Number.POSITIVE_INFINITY;

const nothing: Due = { ticks: [], late: [], missed: 0 };

export class DueTicks {
  readonly #ticks: Ticks;
  readonly #settings: ScheduleSettings;
  /** Up to when ticks have been seen to. */
  #doneMs: number;
  /** The first tick after that; undefined when it is not known, and Infinity when there is none. */
  #nextMs: number | undefined;
  /** Ticks that the store could not be asked about. */
  readonly #owed = new Set<number>();

  constructor(ticks: Ticks, settings: ScheduleSettings, nowMs: number) {
    this.#ticks = ticks;
    this.#settings = settings;
    this.#doneMs = nowMs;
  }

  /** Begins with what everybody together has missed: ticks up to the floor are settled. */
  beginAfter(floorMs: number, nowMs: number): void {
    const { missed, lateMs } = this.#settings;
    this.#doneMs = missed === "skip" ? Math.max(floorMs, nowMs - lateMs - 1) : floorMs;
    this.#nextMs = undefined;
  }

  /** A tick that could not be seen to is due again, for as long as the policy says. */
  owe(tickMs: number): void {
    this.#owed.add(tickMs);
  }

  get owes(): boolean {
    return this.#owed.size > 0;
  }

  /** Those ticks. */
  get owed(): Iterable<number> {
    return this.#owed;
  }

  /** The next tick that is not due yet. */
  next(): number | undefined {
    this.#nextMs ??= this.#ticks.after(this.#doneMs) ?? NEVER;
    return Number.isFinite(this.#nextMs) ? this.#nextMs : undefined;
  }

  /**
   * What is due now, but for what is known to be settled. When the wall clock was set back, ticks that it then reaches once
   * more are due once more: those that ran are settled in the store, and those that were left out meanwhile are not lost.
   */
  take(nowMs: number, isSettled: (tickMs: number) => boolean): Due {
    const idle = this.#owed.size === 0 && nowMs >= this.#doneMs && nowMs < (this.next() ?? NEVER);
    if (idle) {
      this.#doneMs = nowMs;
      return nothing;
    }
    const { missed, lateMs, maxMissed } = this.#settings;
    const lateUntilMs = nowMs - lateMs - 1;
    const fromMs = Math.min(this.#doneMs, nowMs);
    this.#doneMs = nowMs;
    this.#nextMs = undefined;
    const owed = [...this.#owed].filter((tickMs) => tickMs <= nowMs).sort((a, b) => a - b);
    this.#owed.clear();

    const inTime = this.#ticks.first(Math.max(fromMs, lateUntilMs), nowMs, MAX_DUE);
    const late =
      missed === "skip" ? [] : this.#ticks.last(fromMs, lateUntilMs, missed === "all" ? maxMissed : 1);
    const all = [...new Set([...owed, ...late, ...inTime])].sort((a, b) => a - b);
    const kept = all.filter((tickMs) => tickMs > lateUntilMs);
    const lateOnes = all.filter((tickMs) => tickMs <= lateUntilMs);
    const wanted = this.#wanted(lateOnes, kept.length);
    const first = this.#ticks.first(fromMs, lateUntilMs, MAX_DUE);
    const ignored = new Set([...first, ...lateOnes]);
    for (const tickMs of wanted) ignored.delete(tickMs);
    return {
      ticks: kept.filter((tickMs) => !isSettled(tickMs)),
      late: wanted.filter((tickMs) => !isSettled(tickMs)),
      missed: [...ignored].filter((tickMs) => !isSettled(tickMs)).length,
    };
  }

  /** Of those that are too late, what the policy lets run. */
  #wanted(late: readonly number[], inTime: number): readonly number[] {
    const { missed, maxMissed } = this.#settings;
    if (missed === "skip") return [];
    if (missed === "latest") return inTime === 0 ? late.slice(-1) : [];
    return late.slice(-maxMissed);
  }
}
