/** Which ticks a replica has to see to, by its own wall clock and by the policy for those that were missed. */
import type { ScheduleSettings } from "./schedule-options.ts";
import { SECOND_MS, type Ticks } from "./ticks.ts";

/** How many ticks in time are begun at once, and how many missed ones are counted. */
const MAX_DUE = 1_000;

export interface Due {
  /** Those whose run has begun and has to be taken over, however late. */
  readonly begun: readonly number[];
  /** Those that are in time. The oldest first. */
  readonly ticks: readonly number[];
  /** Those that were missed and are to run all the same, one after the other. The oldest first. */
  readonly late: readonly number[];
  /** How many were left out as missed, as far as they were counted. */
  readonly missed: number;
}

const NEVER = Number.POSITIVE_INFINITY;

const nothing: Due = { begun: [], ticks: [], late: [], missed: 0 };

export class DueTicks {
  readonly #ticks: Ticks;
  readonly #settings: ScheduleSettings;
  /** Up to when ticks have been seen to, or are owed. */
  #doneMs: number;
  /** The first tick after that; undefined when it is not known, and Infinity when there is none. */
  #nextMs: number | undefined;
  /** Ticks that are still to be seen to, and whether their run has begun. */
  readonly owed = new Map<number, boolean>();
  /** No tick up to this one is run late any more. The others have been reported as missed. */
  gaveUpMs = Number.NEGATIVE_INFINITY;

  constructor(ticks: Ticks, settings: ScheduleSettings, nowMs: number) {
    this.#ticks = ticks;
    this.#settings = settings;
    this.#doneMs = nowMs;
  }

  /** Ticks after this moment run if no replica has run them, however late. */
  horizonMs(nowMs: number): number {
    const { missed, lateMs } = this.#settings;
    const lateUntilMs = nowMs - lateMs - 1;
    if (missed === "all") return this.gaveUpMs;
    if (missed === "skip") return lateUntilMs;
    return Math.max(this.gaveUpMs, (this.#ticks.last(0, lateUntilMs, 1)[0] ?? nowMs) - SECOND_MS);
  }

  /** A tick is due again: for as long as the policy says, or for ever if its run has begun. */
  owe(tickMs: number, begun = false): void {
    this.owed.set(tickMs, begun || this.owed.get(tickMs) === true);
  }

  /** The next tick that is not due yet. */
  next(): number | undefined {
    this.#nextMs ??= this.#ticks.after(this.#doneMs) ?? NEVER;
    return Number.isFinite(this.#nextMs) ? this.#nextMs : undefined;
  }

  /**
   * The ticks that are due now, except those known to be settled or attended. After the wall clock was set back, ticks that are in
   * time are due once more: the store knows those that ran.
   */
  take(nowMs: number, isKnown: (tickMs: number) => boolean): Due {
    const idle = this.owed.size === 0 && nowMs >= this.#doneMs && nowMs < (this.next() ?? NEVER);
    if (idle) {
      this.#doneMs = nowMs;
      return nothing;
    }
    const { missed, lateMs, maxMissed } = this.#settings;
    const lateUntilMs = nowMs - lateMs - 1;
    const isBack = nowMs < this.#doneMs;
    if (isBack) this.gaveUpMs = Number.NEGATIVE_INFINITY;
    const fromMs = isBack ? lateUntilMs : this.#doneMs;
    this.#doneMs = nowMs;
    this.#nextMs = undefined;
    const unknown = [...this.owed].filter(([tickMs]) => !isKnown(tickMs));
    const begun = unknown.filter(([, hasBegun]) => hasBegun).map(([tickMs]) => tickMs);
    const owed = unknown.map(([tickMs]) => tickMs).filter((ms) => !begun.includes(ms) && ms <= nowMs);
    this.owed.clear();

    const inTime = this.#ticks.first(Math.max(fromMs, lateUntilMs), nowMs, MAX_DUE);
    const late =
      missed === "skip" ? [] : this.#ticks.last(fromMs, lateUntilMs, missed === "all" ? maxMissed : 1);
    const all = [...new Set([...owed, ...late, ...inTime])].sort((a, b) => a - b);
    const kept = all.filter((tickMs) => tickMs > lateUntilMs);
    const lateOnes = all.filter((tickMs) => tickMs <= lateUntilMs);
    const wanted = this.#wanted(lateOnes, kept.length);
    const first = this.#ticks.first(fromMs, lateUntilMs, MAX_DUE);
    const left = new Set([...first, ...lateOnes].filter((tickMs) => !isKnown(tickMs)));
    for (const tickMs of [...wanted, ...begun]) left.delete(tickMs);
    if (left.size > 0) this.gaveUpMs = (wanted[0] ?? nowMs - lateMs) - SECOND_MS;
    return {
      begun,
      ticks: kept.filter((tickMs) => !isKnown(tickMs)),
      late: wanted.filter((tickMs) => !isKnown(tickMs)),
      missed: left.size,
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
