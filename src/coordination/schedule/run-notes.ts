/**
 * What all replicas know of a schedule's runs, kept in the store.
 *
 * Every note is a claim that shares its key with all others (`limit` UNLIMITED), has its text in `info`, and stays for a day
 * unless somebody renews it, as every replica does. Notes are never changed: the start and the end of a run are two notes. So
 * a reader who sees one of several copies, as with Redlock, sees the truth or nothing, and a late copy of a request can
 * bring back an old note but not undo a new one. Their tokens are no secret, because anybody may renew or remove them.
 *
 * A floor bounds their number: every tick up to it is settled, but for those in the open spans that it lists, so that notes
 * of settled ticks are not needed. A tick that has no note, or whose run has to be taken over, stays in an open span. A floor
 * stays true, so a tick is settled if any floor says so, and a late copy of an old one does no harm.
 */
import { randomUUID } from "node:crypto";
import type { Heartbeat } from "../../client/index.ts";
import { isOutage, lookAtKey } from "../../client/index.ts";
import { pause } from "../../platform/index.ts";
import { bounds, type ClaimStatus, HoldfastError, UNLIMITED } from "../../store/index.ts";
import { common, includes, readSpans, type Span, without, writeSpans } from "./open-spans.ts";
import { endId, type NoteText, type RunNote, readNote, startId, writeText } from "./run-note.ts";
import { SECOND_MS, type Ticks } from "./ticks.ts";

/** As long as the store allows. Replicas renew notes that have less than half of it left. */
const NOTE_TTL_MS = bounds.maxTtlMs;

/** How many ticks more than wanted are kept, so that removing the oldest is not part of every run. */
const SLACK = 10;

/** The most ticks that wait to be taken over, and the most attempts at one that are kept, if the replicas go on dying. */
const MAX_BEGUN = 500;
const MAX_ATTEMPTS = 10;

/** The most settled ticks whose notes are kept because the open spans between them do not fit into a floor. */
const MAX_UNTIDY = 1_000;

/** What the ids of notes begin with: claims with such ids have no owner on a lock server, so replicas with other tokens share them. */
const OPEN = ":";

/** The most claims that are read: what is kept is far below it. */
const MAX_READ = bounds.maxShownClaims;

const RETRY_MS = 100;

/** All notes at one moment. */
export interface NotesView {
  /** The latest moment that a floor names. Undefined when the store knows nothing of the schedule. */
  readonly floorMs: number | undefined;
  /** Ticks that are not settled unless a note says so. */
  readonly open: readonly Span[];
  /** Attempts, the oldest tick first, and of one tick the first attempt first. */
  readonly runs: readonly RunNote[];
  /** Notes that say nothing any more. */
  readonly stale: readonly string[];
  readonly floors: readonly string[];
  /** Where the schedule was taken up: the latest of those moments. */
  readonly baseMs: number | undefined;
  readonly ids: readonly string[];
  /** How long the note lives that ends first. */
  readonly leastLifeMs: number;
}

export interface NotesOptions {
  readonly key: string;
  readonly ticks: Ticks;
  /** How many ticks that ran to keep, and how many that were skipped. */
  readonly history: number;
  /** Whether a run that has not ended may still be taken over, so that its tick is open. */
  readonly takeover: boolean;
  /** Attempts of this replica that were written down without the body having been called, by the id of their note. */
  readonly unbegun: ReadonlySet<string>;
  /** Ticks up to this one that have not begun are given up: this replica has reported them as missed. */
  readonly gaveUpMs: () => number;
  /** So many ticks are given up because the store has no room for them. */
  readonly onMissed: (count: number) => void;
}

export class RunNotes {
  readonly #heartbeat: Heartbeat;
  readonly #options: NotesOptions;
  #closedMs = Number.NEGATIVE_INFINITY;

  constructor(heartbeat: Heartbeat, options: NotesOptions) {
    this.#heartbeat = heartbeat;
    this.#options = options;
  }

  async read(): Promise<NotesView> {
    const { key } = this.#options;
    const { held, waiting, heldCount, waitingCount } = await lookAtKey(this.#heartbeat, key, MAX_READ);
    // A part of the notes would make ticks look as if nobody had run them.
    if (held.length + waiting.length < heldCount + waitingCount) {
      const text = `"${key}" has ${heldCount} claims, too many for the notes of a schedule. Give the schedule another name.`;
      throw new HoldfastError("STORE_FAILURE", text, { key });
    }
    // With Redlock, what only some of the servers are seen to have is listed as waiting.
    const notes = [...held, ...waiting].filter(({ id }) => id.startsWith(OPEN));
    const named = notes.map((note) => ({ ...note, id: note.id.slice(OPEN.length) }));
    return viewOf(named, this.#options.unbegun);
  }

  /** Whether no replica may run the tick any more. */
  isSettled({ open, runs }: NotesView, tickMs: number): boolean {
    if (!includes(open, tickMs)) return true;
    return runs.some((run) => run.tickMs === tickMs && (!this.#options.takeover || isFinal(run)));
  }

  /** The latest ticks after one moment and up to another that no replica has begun. */
  unrun(view: NotesView, afterMs: number, untilMs: number, most: number): readonly number[] {
    const { ticks } = this.#options;
    const begun = new Set(ticksOf(view.runs));
    return common(view.open, [[afterMs + 1, untilMs]])
      .flatMap(([firstMs, lastMs]) => ticks.last(firstMs - 1, lastMs, most + begun.size))
      .filter((tickMs) => !begun.has(tickMs))
      .slice(-most);
  }

  /** The notes of the latest ticks that ran, of the latest that were skipped, and of those that wait to be taken over. */
  shown(view: NotesView): readonly RunNote[] {
    const kept = latest(view.runs, this.#options.history);
    return view.runs.filter(({ tickMs }) => kept.has(tickMs) || !this.isSettled(view, tickMs));
  }

  /** The schedule was taken up at this moment: earlier ticks are nobody's business. */
  async begin(atMs: number): Promise<void> {
    await this.#write(`base:${Math.floor(atMs / SECOND_MS) * SECOND_MS}`, "", never);
  }

  /** Puts another beginning in the place of one that a wrong clock has set too late. Notes of runs count as before. */
  async beginAnew(view: NotesView, atMs: number): Promise<void> {
    await this.begin(atMs);
    await this.#remove(view.floors.filter((id) => id.startsWith("base:")));
  }

  /** Writes down that a run begins. Repeats itself while the store is unavailable and `patient` says so. */
  async start(tickMs: number, claimFence: bigint, text: NoteText, patient: () => boolean): Promise<void> {
    await this.#write(startId(tickMs, claimFence), writeText(text), patient);
  }

  /** Takes back that a run begins. */
  async withdraw(tickMs: number, claimFence: bigint): Promise<void> {
    await this.#remove([startId(tickMs, claimFence)]);
  }

  async end(tickMs: number, claimFence: bigint, text: NoteText, patient: () => boolean): Promise<void> {
    await this.#write(endId(tickMs, claimFence), writeText(text), patient);
  }

  /** Removes notes that are no longer needed, given the notes before a run ended. */
  async tidy(before: NotesView, ended?: RunNote): Promise<void> {
    const view = ended === undefined ? before : withRun(before, ended);
    const { history, gaveUpMs, onMissed, ticks } = this.#options;
    const noted = ticksOf(view.runs);
    const begun = noted.filter((tickMs) => !this.isSettled(view, tickMs));
    const dropped = begun.splice(0, begun.length - MAX_BEGUN);
    const settled = noted.filter((tickMs) => !begun.includes(tickMs));
    const kept = latest(view.runs, history);
    const old = new Set(settled.filter((tickMs) => !kept.has(tickMs)));
    const closeMs = gaveUpMs();
    const isClosing = closeMs > this.#closedMs;
    if (old.size <= SLACK && !isClosing && dropped.length === 0) return this.#remove(view.stale);

    const floorMs = Math.max(view.floorMs ?? 0, ...(isClosing ? settled : old), ...dropped);
    const open = common(without(view.open, settled, ticks), [
      // Ticks that were given up are closed, except those that have begun and may have to be taken over.
      ...begun.filter((tickMs) => tickMs <= closeMs).map((tickMs): Span => [tickMs, tickMs]),
      [Math.max(closeMs + SECOND_MS, 0), Number.POSITIVE_INFINITY],
    ]);
    const spans = common(open, [[0, floorMs]]);
    let text = writeSpans(spans, floorMs);
    if (text === undefined && old.size <= MAX_UNTIDY) return this.#remove(view.stale);
    let missed = dropped.length;
    for (; text === undefined; text = writeSpans(spans, floorMs)) {
      for (const [firstMs, lastMs] of spans.splice(0, 1)) {
        missed += ticks.first(firstMs - 1, lastMs, MAX_UNTIDY).length;
      }
    }
    // First the floor: a reader in between sees both, and never neither.
    await this.#write(`floor:${floorMs}:${randomUUID()}`, text, never);
    this.#closedMs = Math.min(closeMs, floorMs);
    if (missed > 0) onMissed(missed);
    const olds = view.runs.filter(({ tickMs }) => old.has(tickMs)).flatMap(({ ids }) => ids);
    await this.#remove([...new Set([...view.stale, ...view.floors, ...olds])]);
  }

  /** Keeps all notes for another day when half of theirs is over. */
  async renew(view: NotesView): Promise<void> {
    if (view.ids.length === 0 || view.leastLifeMs > NOTE_TTL_MS / 2) return;
    const { store } = this.#heartbeat;
    const refs = view.ids.map((id) => ({ ...this.#ref(id), ttlMs: NOTE_TTL_MS }));
    const renew = async () => {
      const answers = await store.renew(refs);
      // One failure stands for all of them: the next attempt is at all.
      for (const answer of answers) if (answer.state === "failed") throw answer.error;
    };
    await this.#heartbeat.answer(renew, this.#options.key);
  }

  #ref(id: string) {
    return { key: this.#options.key, id: OPEN + id, token: OPEN + id };
  }

  async #remove(ids: readonly string[]): Promise<void> {
    const { store } = this.#heartbeat;
    if (ids.length === 0) return;
    await this.#heartbeat.answer(() => store.release(ids.map((id) => this.#ref(id))), this.#options.key);
  }

  async #write(id: string, info: string, patient: () => boolean): Promise<void> {
    const { store, clock, owner, settings } = this.#heartbeat;
    const { key } = this.#options;
    const request = {
      ...this.#ref(id),
      weight: 1,
      limit: UNLIMITED,
      priority: 0,
      ttlMs: NOTE_TTL_MS,
      wait: false,
      owner,
      info,
      application: settings.application,
    };
    for (;;) {
      try {
        const answer = await this.#heartbeat.answer(() => store.acquire(request), key);
        if (answer.state === "held") return;
        throw new HoldfastError("STORE_FAILURE", notSharedText(key), { key });
      } catch (error) {
        if (!isOutage(error) || !patient()) throw error;
        await pause(clock, RETRY_MS, undefined, true);
      }
    }
  }
}

/** Whether nobody needs to run the tick of this attempt any more, also where runs are taken over. */
export function isFinal({ outcome }: RunNote): boolean {
  return outcome === "completed" || outcome === "failed" || outcome === "skipped";
}

const never = () => false;

function ticksOf(runs: readonly RunNote[]): number[] {
  return [...new Set(runs.map(({ tickMs }) => tickMs))];
}

/** The latest ticks that ran and the latest that were skipped, so many of each. */
function latest(runs: readonly RunNote[], count: number): Set<number> {
  const ran = runs.filter(({ outcome }) => outcome !== "skipped");
  const skipped = runs.filter(({ outcome }) => outcome === "skipped");
  return new Set([...ticksOf(ran).slice(-count), ...ticksOf(skipped).slice(-count)]);
}

function viewOf(claims: readonly ClaimStatus[], unbegun: ReadonlySet<string>): NotesView {
  const floors = claims.filter(({ id }) => /^(base|floor):\d{1,16}(:|$)/.test(id));
  const bases = floors.filter(({ id }) => id.startsWith("base:"));
  const always: readonly Span[] = [[0, Number.POSITIVE_INFINITY]];
  const byAttempt = new Map<string, RunNote>();
  const stale: string[] = [];
  for (const claim of claims) {
    const note = readNote(claim);
    if (note === undefined) continue;
    if (unbegun.has(claim.id)) stale.push(claim.id);
    else {
      const name = `${note.tickMs}:${note.claimFence}`;
      const other = byAttempt.get(name);
      byAttempt.set(name, other === undefined ? note : joined(other, note));
    }
  }
  const runs = inOrder([...byAttempt.values()]);
  for (const [index, run] of runs.entries()) {
    if (run.outcome !== "running") stale.push(...run.ids.filter((id) => id.startsWith("start:")));
    if (runs[index + MAX_ATTEMPTS]?.tickMs === run.tickMs && !isFinal(run)) stale.push(...run.ids);
  }
  return {
    floorMs: latestOf(floors),
    open: floors.reduce((open, { id, info }) => common(open, readSpans(info, momentOf(id))), always),
    runs,
    stale,
    floors: floors.map(({ id }) => id),
    baseMs: latestOf(bases),
    ids: claims.map(({ id }) => id).filter((id) => Number.isFinite(momentOf(id))),
    leastLifeMs: Math.min(...claims.map(({ expiresInMs }) => expiresInMs)),
  };
}

/** Of a start and an end, the end says more. */
function joined(one: RunNote, other: RunNote): RunNote {
  return { ...(one.outcome === "running" ? other : one), ids: [...one.ids, ...other.ids] };
}

/** The moment in a note's id. NaN for any other claim. */
function momentOf(id: string): number {
  return Number(/^(?:base|floor|start|end):(\d{1,16})\b/.exec(id)?.[1] ?? Number.NaN);
}

function latestOf(claims: readonly ClaimStatus[]): number | undefined {
  return claims.length === 0 ? undefined : Math.max(...claims.map(({ id }) => momentOf(id)));
}

function inOrder(runs: readonly RunNote[]): RunNote[] {
  return runs.toSorted((a, b) => a.tickMs - b.tickMs || (a.claimFence < b.claimFence ? -1 : 1));
}

function withRun(view: NotesView, ended: RunNote): NotesView {
  const others = view.runs.filter(
    ({ tickMs, claimFence }) => tickMs !== ended.tickMs || claimFence !== ended.claimFence,
  );
  const stale = [...view.stale, startId(ended.tickMs, ended.claimFence)];
  return { ...view, runs: inOrder([...others, ended]), stale };
}

function notSharedText(key: string): string {
  return `"${key}" is held by another lock, so the schedule cannot write its notes there. Give the schedule another name.`;
}
