/**
 * One tick of a schedule, from its claim to its end, on one replica.
 *
 * Every replica asks for the tick's own claim when the tick is due by its clock, and queues for it. Whoever holds it reads the
 * notes. If they say that the tick is settled, it lets go. Otherwise it writes down that it begins, and calls the body only if
 * it still holds the claim when the store has confirmed that. So whoever holds the claim next, however late its clock or its
 * request was, was granted it after that note was written, and reads it. docs/decisions/0015 goes through the interleavings.
 */

import type { Heartbeat, Lease } from "../../client/index.ts";
import { KeyLock, runAndRelease } from "../../client/index.ts";
import { joinSignals } from "../../platform/index.ts";
import { AcquireTimeoutError } from "../../store/index.ts";
import { endId, type NoteText, type RunOutcome, startId } from "./run-note.ts";
import type { NotesView, RunNotes } from "./run-notes.ts";
import type { ScheduleSettings } from "./schedule-options.ts";

/** What a schedule's body is called with. */
export interface ScheduledRun {
  /** The schedule's name. */
  readonly name: string;
  /** The moment that the pattern names, however late it is now. The same for every replica and every attempt. */
  readonly tick: Date;
  /** 1, and more where a run is taken over. */
  readonly attempt: number;
  /** Grows with every attempt at a tick and, unless runs may overlap, with every run of the schedule. */
  readonly fence: bigint;
  /** Aborts when the lease is lost, when the schedule is stopped with `abort`, and when the client closes. */
  readonly signal: AbortSignal;
  /** Whether it is proven at this moment that nobody else runs this tick. */
  readonly held: boolean;
  /** Throws LeaseLostError unless it is. */
  assertHeld(): void;
}

export type ScheduleBody = (run: ScheduledRun) => unknown;

/** What a tick came to on this replica. */
export type TickResult =
  /** The body was called, and this is how it ended. */
  | {
      readonly ran: true;
      readonly outcome: RunOutcome;
      readonly error?: unknown;
      readonly unrecorded?: unknown;
    }
  /** It was not: somebody else has run the tick or is at it, an earlier run is not over, or the store has forgotten the schedule. */
  | { readonly ran: false; readonly why: "settled" | "overlap" | "forgotten" };

export interface TickContext {
  readonly heartbeat: Heartbeat;
  readonly name: string;
  readonly settings: ScheduleSettings;
  readonly notes: RunNotes;
  readonly body: ScheduleBody;
  /** Aborts when nothing may begin any more. */
  readonly stopping: AbortSignal;
  /** Aborts when what has begun is to stop. */
  readonly aborting: AbortSignal;
  /** Attempts of this replica that were written down without the body having been called, by the id of their note. */
  readonly unbegun: Set<string>;
  /** Called when the body is, and again when it has ended. */
  readonly onRunning: (change: 1 | -1) => void;
}

export function tickKey(name: string, tickMs: number): string {
  return `${name}#tick:${new Date(tickMs).toISOString()}`;
}

export class TickRun {
  readonly #context: TickContext;
  readonly #tickMs: number;
  /** Whether a run of the tick has begun here, which may have to be taken over. */
  begun = false;

  constructor(context: TickContext, tickMs: number) {
    this.#context = context;
    this.#tickMs = tickMs;
  }

  /** Sees to the tick. Rejects when the store fails before the body was called, and when `stopping` aborts before that. */
  async attend(): Promise<TickResult> {
    const { heartbeat, name, settings, stopping } = this.#context;
    const lock = new KeyLock(heartbeat, tickKey(name, this.#tickMs), 1, settings.lock);
    // Where runs are not taken over, this only waits for somebody who died before writing anything down.
    const waitMs = settings.takeover ? Number.POSITIVE_INFINITY : settings.lock.ttlMs;
    for (;;) {
      let lease: Lease;
      try {
        lease = await lock.acquire({ waitMs, signal: stopping, info: `schedule ${name}` });
      } catch (error) {
        if (!(error instanceof AcquireTimeoutError)) throw error;
        // Whoever has the claim lives, or the store is away: then this fails.
        const view = await this.#context.notes.read();
        if (this.#context.notes.isSettled(view, this.#tickMs)) return { ran: false, why: "settled" };
        continue;
      }
      const result = await runAndRelease(heartbeat, [lease], lease, (held) => this.#decide(held));
      const again = settings.takeover && result.ran && result.outcome === "lost" && !stopping.aborted;
      if (!again) return result;
    }
  }

  async #decide(lease: Lease): Promise<TickResult> {
    const view = await this.#context.notes.read();
    if (view.floorMs === undefined) return { ran: false, why: "forgotten" };
    if (this.#context.notes.isSettled(view, this.#tickMs)) return { ran: false, why: "settled" };
    const attempts = view.runs.filter(({ tickMs }) => tickMs === this.#tickMs);
    const attempt = Math.max(0, ...attempts.map((note) => note.attempt)) + 1;
    if (this.#context.settings.overlap === "allow") return this.#begin(lease, lease, attempt, view);

    const busy = await this.#takeTurn(attempt);
    if (busy === null) return this.#skip(lease, attempt, view);
    return runAndRelease(this.#context.heartbeat, [busy], busy, (turn) =>
      this.#begin(lease, turn, attempt, view),
    );
  }

  /** The lease that one run of the schedule holds at a time. */
  #takeTurn(attempt: number): Promise<Lease | null> {
    const { heartbeat, name, settings, stopping } = this.#context;
    const lock = new KeyLock(heartbeat, `${name}#running`, 1, settings.lock);
    // Whoever is taken over may still be seen to run for a moment: its two leases end at about the same time.
    const waits = settings.overlap === "queue" || attempt > 1;
    return waits ? lock.acquire({ signal: stopping }) : lock.tryAcquire({ signal: stopping });
  }

  async #skip(lease: Lease, attempt: number, view: NotesView): Promise<TickResult> {
    const nowMs = this.#context.heartbeat.clock.wallMs();
    const { fence } = lease;
    const text: NoteText = { attempt, fence, startedAtMs: nowMs, endedAtMs: nowMs, outcome: "skipped" };
    await this.#context.notes.end(this.#tickMs, fence, text, () => lease.held);
    await this.#tidy(lease, view, text);
    return { ran: false, why: "overlap" };
  }

  async #begin(lease: Lease, turn: Lease, attempt: number, view: NotesView): Promise<TickResult> {
    const { notes, heartbeat, stopping } = this.#context;
    const tickMs = this.#tickMs;
    const startedAtMs = heartbeat.clock.wallMs();
    const text: NoteText = { attempt, fence: turn.fence, startedAtMs, outcome: "running" };
    try {
      await notes.start(tickMs, lease.fence, text, () => lease.held && turn.held);
      // From here on the tick is ours, if the claim still is: whoever gets it next will read the note.
      lease.assertHeld();
      turn.assertHeld();
      stopping.throwIfAborted();
    } catch (error) {
      this.#context.unbegun.add(startId(tickMs, lease.fence));
      await notes.withdraw(tickMs, lease.fence).catch(() => {});
      throw error;
    }
    this.begun = true;
    const { outcome, error } = await this.#call(lease, turn, attempt);
    const endedAtMs = heartbeat.clock.wallMs();
    const reason = outcome === "failed" ? { error: textOf(error) } : {};
    const endText: NoteText = { ...text, endedAtMs, outcome, ...reason };
    try {
      await notes.end(tickMs, lease.fence, endText, () => lease.held);
    } catch (unrecorded) {
      return { ran: true, outcome, error, unrecorded };
    }
    await this.#tidy(lease, view, endText);
    return { ran: true, outcome, error };
  }

  async #call(lease: Lease, turn: Lease, attempt: number): Promise<{ outcome: RunOutcome; error?: unknown }> {
    const { aborting, body, name, onRunning } = this.#context;
    const { signal, part } = joinSignals([lease.signal, turn.signal, aborting]);
    const run: ScheduledRun = {
      name,
      tick: new Date(this.#tickMs),
      attempt,
      fence: turn.fence,
      signal,
      get held() {
        return lease.held && turn.held;
      },
      assertHeld() {
        lease.assertHeld();
        turn.assertHeld();
      },
    };
    // What a body that was told to stop returns or throws says nothing about whether it was through.
    const stopped = (): RunOutcome => {
      const closed = [lease, turn].some(({ state }) => state.lost === "closed");
      return aborting.aborted || closed ? "aborted" : "lost";
    };
    onRunning(1);
    try {
      await body(run);
      return { outcome: signal.aborted ? stopped() : "completed" };
    } catch (error) {
      return signal.aborted ? { outcome: stopped(), error } : { outcome: "failed", error };
    } finally {
      part();
      onRunning(-1);
    }
  }

  /** Old notes can be removed by whoever comes next as well. */
  async #tidy({ fence: claimFence }: Lease, view: NotesView, text: NoteText): Promise<void> {
    const { notes, heartbeat } = this.#context;
    const tickMs = this.#tickMs;
    const ids = [startId(tickMs, claimFence), endId(tickMs, claimFence)];
    const ended = { ...text, tickMs, claimFence, owner: heartbeat.owner, ids };
    await notes.tidy(view, ended).catch(() => {});
  }
}

function textOf(error: unknown): string {
  try {
    return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  } catch {
    return "something that cannot be shown";
  }
}
