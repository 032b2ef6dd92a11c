/** Runs a body at the ticks of a cron pattern, on one of all replicas that have a schedule of the same name. */

import type { Heartbeat, HoldfastWarning } from "../../client/index.ts";
import { closedError, jsonable, lookAtKey } from "../../client/index.ts";
import type { Timer } from "../../platform/index.ts";
import { onAbort } from "../../platform/index.ts";
import { checkOptionNames, HoldfastError } from "../../store/index.ts";
import { DueTicks } from "./due-ticks.ts";
import { type RunNote, type RunRecord, startId } from "./run-note.ts";
import { type NotesView, RunNotes } from "./run-notes.ts";
import type { Schedule, ScheduleStatus, ScheduleStopOptions } from "./schedule.ts";
import { resolveScheduleOptions, type ScheduleOptions, type ScheduleSettings } from "./schedule-options.ts";
import { type ScheduleBody, type TickContext, type TickResult, TickRun, tickKey } from "./tick-run.ts";
import { SECOND_MS, Ticks } from "./ticks.ts";

/** How often the wall clock is looked at, at least, when no tick is near: it may have been set, and a machine may have slept. */
const MAX_SLEEP_MS = 10_000;

/** How often the notes are looked after: renewed when they get old, begun again when the store has lost them. */
const UPKEEP_MS = 300_000;

/** A schedule that begins so far ahead was taken up by somebody whose clock was wrong. */
const WRONG_CLOCK_MS = 60_000;

/** How soon the store is asked again after it failed. */
const RETRY_MS = 1_000;

/** The most ticks that one replica sees to at a time. */
const MAX_ATTENDED = 1_000;

/** How many ticks this replica remembers to be settled, so that it does not ask again. */
const MAX_SETTLED = 2_000;

export class CronSchedule implements Schedule {
  readonly name: string;
  readonly #heartbeat: Heartbeat;
  readonly #settings: ScheduleSettings;
  readonly #ticks: Ticks;
  readonly #due: DueTicks;
  readonly #notes: RunNotes;
  readonly #context: TickContext;
  readonly #stopping = new AbortController();
  readonly #aborting = new AbortController();
  /** The ticks that are being seen to. */
  readonly #attended = new Map<number, Promise<void>>();
  readonly #settled = new Set<number>();
  readonly #unbegun = new Set<string>();
  /** Missed ticks that are still to be seen to, and the work on them. */
  readonly #backlog = new Set<number>();
  #catchingUp: Promise<void> | undefined;
  #isCatchingUp = false;
  readonly #onStopped: () => void;
  #timer: Timer | undefined;
  /** Whether the store has been told that there is such a schedule. */
  #begun = false;
  /** The look after the notes that is under way, and when the next one is due on the monotonic clock. */
  #upkeep: Promise<void> | undefined;
  #upkeepMs: number;
  #running = 0;
  #lastError: HoldfastError | undefined;
  #lastTrouble = "";
  #last: ScheduleStatus["last"];
  readonly #counts = { completed: 0, failed: 0, interrupted: 0, overlapped: 0, missed: 0 };

  constructor(
    heartbeat: Heartbeat,
    name: string,
    cron: string,
    body: ScheduleBody,
    options: ScheduleOptions,
    onStopped: () => void,
  ) {
    const settings = resolveScheduleOptions(options, name, heartbeat.store);
    this.name = name;
    this.#heartbeat = heartbeat;
    this.#settings = settings;
    this.#ticks = new Ticks(cron, settings.timezone);
    this.#due = new DueTicks(this.#ticks, settings, heartbeat.clock.wallMs());
    this.#notes = new RunNotes(heartbeat, {
      ...settings,
      key: `${name}#runs`,
      ticks: this.#ticks,
      unbegun: this.#unbegun,
      gaveUpMs: () => this.#closedUntil(),
      onMissed: (count) => this.#miss(count),
    });
    this.#context = {
      heartbeat,
      name,
      settings,
      notes: this.#notes,
      body,
      stopping: this.#stopping.signal,
      aborting: this.#aborting.signal,
      unbegun: this.#unbegun,
      onRunning: (change) => {
        this.#running += change;
      },
    };
    this.#upkeepMs = heartbeat.clock.monotonicMs();
    const { signal } = options;
    let listenNoMore = () => {};
    const abort = () => void this.stop({ abort: true });
    const leave = heartbeat.onClosing(() => this.#halt(closedError(name)));
    this.#onStopped = () => {
      leave();
      onStopped();
      // Until the last body has ended, the signal can still hurry it up.
      void Promise.all(this.#attended.values()).then(listenNoMore);
    };
    if (signal?.aborted === true) abort();
    else {
      if (signal !== undefined) listenNoMore = onAbort(signal, abort);
      this.#wake();
    }
  }

  status(): ScheduleStatus {
    const stopped = this.#stopping.signal.aborted;
    const nextMs = stopped ? undefined : this.#due.next();
    return {
      name: this.name,
      ...(nextMs === undefined ? {} : { next: new Date(nextMs) }),
      running: this.#running,
      ...this.#counts,
      available: this.#lastError === undefined,
      ...(this.#lastError === undefined ? {} : { lastError: this.#lastError }),
      ...(this.#last === undefined ? {} : { last: this.#last }),
      stopped,
    };
  }

  async history(): Promise<readonly RunRecord[]> {
    const shown = this.#notes.shown(await this.#notes.read());
    return Promise.all(shown.toReversed().map((note) => this.#record(note)));
  }

  async stop(options: ScheduleStopOptions = {}): Promise<void> {
    checkOptionNames("stop", options, { abort: true });
    this.#halt(new HoldfastError("CLOSED", `The schedule "${this.name}" was stopped.`, { key: this.name }));
    if (options.abort === true) this.#aborting.abort(this.#stopping.signal.reason);
    await Promise.all([this.#upkeep, this.#catchingUp, ...this.#attended.values()]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #halt(reason: HoldfastError): void {
    if (this.#stopping.signal.aborted) return;
    this.#timer?.cancel();
    this.#stopping.abort(reason);
    this.#onStopped();
  }

  /** Does what is due, and sets the timer for what is next. */
  #wake(): void {
    if (this.#stopping.signal.aborted) return;
    const { clock } = this.#heartbeat;
    if (this.#upkeep === undefined && clock.monotonicMs() >= this.#upkeepMs) {
      this.#upkeep = this.#lookAfterNotes().finally(() => {
        this.#upkeep = undefined;
        this.#wake();
      });
      this.#heartbeat.inBackground(this.#upkeep);
    }
    if (this.#begun) this.#attendDue(clock.wallMs());
    this.#arm();
  }

  #arm(): void {
    const { clock } = this.#heartbeat;
    this.#timer?.cancel();
    // After a step forward, a tick that is still ahead has to be seen before it is late.
    const sleeps = [Math.min(MAX_SLEEP_MS, this.#settings.lateMs / 2)];
    if (this.#due.owed.size > 0) sleeps.push(RETRY_MS);
    if (this.#upkeep === undefined) sleeps.push(this.#upkeepMs - clock.monotonicMs());
    const nextMs = this.#begun ? this.#due.next() : undefined;
    if (nextMs !== undefined) sleeps.push(nextMs - clock.wallMs());
    this.#timer = clock.setTimer(Math.max(0, Math.min(...sleeps)), () => this.#wake());
    this.#timer.keepAlive(this.#settings.keepAlive);
  }

  #attendDue(nowMs: number): void {
    const { begun, ticks, late, missed } = this.#due.take(
      nowMs,
      (tickMs) => this.#settled.has(tickMs) || this.#attended.has(tickMs),
    );
    let ignored = missed;
    for (const tickMs of begun) void this.#attend(tickMs);
    if (late.length > 0) this.#catchUp([...late, ...ticks]);
    else {
      for (const tickMs of ticks) {
        if (this.#attended.size < MAX_ATTENDED) void this.#attend(tickMs);
        else ignored++;
      }
    }
    if (ignored > 0) this.#miss(ignored);
  }

  /** Sees to missed ticks one after the other, and then to what is at hand. */
  #catchUp(late: readonly number[]): void {
    for (const tickMs of late) this.#backlog.add(tickMs);
    if (!this.#isCatchingUp) this.#catchingUp = this.#workOff();
  }

  async #workOff(): Promise<void> {
    this.#isCatchingUp = true;
    for (const tickMs of this.#backlog) {
      this.#backlog.delete(tickMs);
      if (this.#stopping.signal.aborted) break;
      if (this.#settled.has(tickMs) || this.#attended.has(tickMs)) continue;
      await this.#attend(tickMs);
      if (this.#lastError === undefined) continue;
      // The store is away. What is left is tried again with the one that failed, and counted anew.
      for (const leftMs of this.#backlog) this.#due.owe(leftMs);
      this.#backlog.clear();
    }
    this.#isCatchingUp = false;
  }

  /** Ticks that have not begun up to this one can be closed. Only with `all` would they be asked for once more. */
  #closedUntil(): number {
    if (this.#settings.missed !== "all") return Number.NEGATIVE_INFINITY;
    const pendingMs = Math.min(...this.#backlog, ...this.#due.owed.keys(), ...this.#attended.keys());
    return Math.min(this.#due.gaveUpMs, pendingMs - SECOND_MS);
  }

  #attend(tickMs: number): Promise<void> {
    const work = this.#see(tickMs);
    this.#attended.set(tickMs, work);
    this.#heartbeat.inBackground(work);
    return work;
  }

  async #see(tickMs: number): Promise<void> {
    const run = new TickRun(this.#context, tickMs);
    try {
      const result = await run.attend();
      this.#attended.delete(tickMs);
      // An outage is over. Runs that lost their lease in it may have to be taken over.
      if (this.#lastError !== undefined) this.#lookSoon();
      this.#lastError = undefined;
      this.#note(tickMs, result);
    } catch (error) {
      // In one turn with being owed again: otherwise a look in between drops the tick.
      this.#attended.delete(tickMs);
      if (this.#stopping.signal.aborted) return;
      this.#trouble(error, `Tick ${shown(tickMs)} of "${this.name}" was not run`);
      this.#due.owe(tickMs, run.begun);
      this.#arm();
    }
  }

  #note(tickMs: number, result: TickResult): void {
    this.#remember(tickMs);
    for (const id of this.#unbegun) if (id.startsWith(startId(tickMs, ""))) this.#unbegun.delete(id);
    if (!result.ran) {
      if (result.why === "overlap") this.#counts.overlapped++;
      if (result.why === "forgotten") this.#forgotten(tickMs);
      return;
    }
    const { outcome, error, unrecorded } = result;
    this.#last = { tick: new Date(tickMs), outcome };
    const run = `The run of "${this.name}" for ${shown(tickMs)}`;
    if (outcome === "completed") this.#counts.completed++;
    else if (outcome === "failed") {
      this.#counts.failed++;
      this.#warn("RUN_FAILED", `${run} failed.`, error);
    } else this.#counts.interrupted++;
    if (unrecorded !== undefined) {
      this.#lastError = HoldfastError.from(unrecorded, this.name);
      this.#warn(
        "RUN_UNRECORDED",
        `${run} has ended (${outcome}), but the store did not record that.`,
        unrecorded,
      );
    }
  }

  #miss(count: number): void {
    this.#counts.missed += count;
    this.#warn(
      "TICKS_MISSED",
      `This replica did not run ${count} ticks of "${this.name}", because they were too late. Other replicas may run them.`,
    );
  }

  /** The store was asked about a tick and knows of no schedule. Whether somebody ran it before that is unknown, so nobody does. */
  #forgotten(tickMs: number): void {
    this.#warn(
      "SCHEDULE_FORGOTTEN",
      `The store has lost its notes on "${this.name}". Tick ${shown(tickMs)} is skipped, because it may have run already.`,
    );
    this.#lookSoon();
  }

  #lookSoon(): void {
    this.#upkeepMs = this.#heartbeat.clock.monotonicMs();
    this.#wake();
  }

  /** Makes sure that the store knows the schedule, keeps the notes alive, and finds out what was left undone. */
  async #lookAfterNotes(): Promise<void> {
    const { clock } = this.#heartbeat;
    try {
      let view = await this.#notes.read();
      const nowMs = Math.floor(clock.wallMs());
      if (view.floorMs === undefined) {
        // One that was known before, and was forgotten, begins when nobody can have run a tick that lies ahead.
        await this.#notes.begin(nowMs + (this.#begun ? this.#settings.maxSkewMs : 0));
        view = await this.#notes.read();
      } else if (view.floorMs > nowMs + this.#settings.maxSkewMs * 2 + WRONG_CLOCK_MS) {
        // Another clock is wrong. If it only took the schedule up, nothing runs until that time, and that can be mended.
        if (view.baseMs === view.floorMs) {
          await this.#notes.beginAnew(view, nowMs);
          view = await this.#notes.read();
        } else {
          const ahead = `Ticks of "${this.name}" up to ${shown(view.floorMs)} have run`;
          this.#warn(
            "CLOCKS_DIFFER",
            `${ahead}, far ahead of this replica's clock. Set the clocks of all replicas right.`,
          );
        }
      }
      await this.#notes.renew(view);
      await this.#notes.tidy(view);
      this.#lastError = undefined;
      this.#upkeepMs = clock.monotonicMs() + UPKEEP_MS;
      this.#adopt(view, clock.wallMs());
      if (this.#settings.takeover) this.#resume(view);
    } catch (error) {
      this.#upkeepMs = clock.monotonicMs() + RETRY_MS;
      if (!this.#stopping.signal.aborted)
        this.#trouble(error, `The notes of "${this.name}" could not be read or renewed`);
    }
  }

  /** Owes the ticks that no replica has begun, as far back as the policy says. */
  #adopt(view: NotesView, nowMs: number): void {
    this.#begun = true;
    const most = this.#settings.maxMissed + MAX_ATTENDED;
    for (const tickMs of this.#notes.unrun(view, this.#due.horizonMs(nowMs), nowMs, most)) {
      if (!this.#backlog.has(tickMs)) this.#due.owe(tickMs);
    }
    // What others have run, or are running and nobody is to take over, need not be asked about again.
    for (const { tickMs } of view.runs) if (this.#notes.isSettled(view, tickMs)) this.#remember(tickMs);
  }

  #remember(settledMs: number): void {
    this.#settled.add(settledMs);
    if (this.#settled.size > MAX_SETTLED) this.#settled.delete(Math.min(...this.#settled));
  }

  /** Runs that have begun and not ended: whoever is at them is waited for, and taken over from if it is dead. */
  #resume(view: NotesView): void {
    if (this.#stopping.signal.aborted) return;
    for (const { tickMs } of view.runs) {
      if (!this.#notes.isSettled(view, tickMs) && !this.#attended.has(tickMs)) void this.#attend(tickMs);
    }
  }

  async #record(note: RunNote): Promise<RunRecord> {
    const { tickMs, claimFence, ids: _, ...rest } = note;
    const record = { ...rest, tick: new Date(tickMs) };
    if (note.outcome !== "running") return jsonable(record);
    const { held } = await lookAtKey(this.#heartbeat, tickKey(this.name, tickMs), 1);
    return jsonable(held[0]?.fence === claimFence ? record : { ...record, outcome: "lost" });
  }

  #trouble(error: unknown, what: string): void {
    // Once for a tick, and once for an outage: it is tried again every second.
    const isNews = this.#lastError === undefined || this.#lastTrouble !== what;
    this.#lastTrouble = what;
    this.#lastError = HoldfastError.from(error, this.name);
    this.#heartbeat.stats.skipped++;
    if (isNews) this.#warn("SKIPPED_UNAVAILABLE", `${what}: ${this.#lastError.message}`, error);
  }

  #warn(code: HoldfastWarning["code"], message: string, cause?: unknown): void {
    this.#heartbeat.report.warn({ code, message, key: this.name, cause });
  }
}

function shown(tickMs: number): string {
  return new Date(tickMs).toISOString();
}
