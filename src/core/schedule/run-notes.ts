/**
 * What all replicas know of a schedule's runs, kept in the store.
 *
 * Every note is a claim that shares its key with all others (`limit` UNLIMITED), has its text in `info`, and stays for a day
 * unless somebody renews it, as every replica does. Notes are never changed: the start and the end of a run are two notes. So
 * a reader who sees one of several copies, as with Redlock, sees the truth or nothing, and a late copy of a request can
 * bring back an old note but not undo a new one. Their tokens are no secret, because anybody may renew or remove them.
 *
 * `floor` bounds their number: every tick up to it counts as settled, whoever asks, so that notes of such ticks are not
 * needed. It begins as the moment at which the schedule was first seen, and is raised before older notes are removed.
 */
import { HoldfastError } from "../errors.ts";
import type { Heartbeat } from "../heartbeat.ts";
import { isOutage, lookAtKey } from "../lock.ts";
import { pause } from "../pause.ts";
import { type ClaimStatus, UNLIMITED } from "../store.ts";
import { bounds } from "../validation.ts";
import { endId, type NoteText, type RunNote, readNote, startId, writeText } from "./run-note.ts";

/** As long as the store allows. Replicas renew notes that have less than half of it left. */
const NOTE_TTL_MS = bounds.maxTtlMs;

/** How many ticks more than wanted are kept, so that removing the oldest is not part of every run. */
const SLACK = 10;

/** What the ids of notes begin with: claims with such ids have no owner on a lock server, so replicas with other tokens share them. */
const OPEN = ":";

/** The most claims that are read: what is kept is far below it. */
const MAX_READ = bounds.maxShownClaims;

const RETRY_MS = 100;

/** All notes at one moment. */
export interface NotesView {
  /** Ticks up to this one are settled. Undefined when the store knows nothing of the schedule. */
  readonly floorMs: number | undefined;
  /** Attempts at later ticks, the oldest tick first, and of one tick the first attempt first. */
  readonly runs: readonly RunNote[];
  /** Claims that say nothing any more. */
  readonly stale: readonly string[];
  /** Where the schedule was taken up, and not where notes were removed: the ids, and the latest of those moments. */
  readonly bases: readonly string[];
  readonly baseMs: number | undefined;
  readonly ids: readonly string[];
  /** How long the note lives that ends first. */
  readonly leastLifeMs: number;
}

export interface NotesOptions {
  readonly key: string;
  /** How many ticks to keep. */
  readonly history: number;
  /** Ticks that are not older than the newest by more than this are kept as well. */
  readonly maxSkewMs: number;
  /** Whether a run that has not ended may still be taken over, so that its note should not be removed. */
  readonly takeover: boolean;
  /** How many ticks may have to be made up for. */
  readonly maxMissed: number;
  /** Ticks from this one on may still have to run here. */
  readonly keepFromMs: () => number;
}

export class RunNotes {
  readonly #heartbeat: Heartbeat;
  readonly #options: NotesOptions;

  constructor(heartbeat: Heartbeat, options: NotesOptions) {
    this.#heartbeat = heartbeat;
    this.#options = options;
  }

  async read(): Promise<NotesView> {
    const { key } = this.#options;
    const { held, waiting, heldCount, waitingCount } = await lookAtKey(this.#heartbeat, key, MAX_READ);
    // A part of the notes would make ticks look as if nobody had run them.
    if (held.length + waiting.length < heldCount + waitingCount) {
      throw new HoldfastError(
        "STORE_FAILURE",
        `"${key}" has ${heldCount} claims, too many for the notes of a schedule. Give the schedule another name.`,
        {
          key,
        },
      );
    }
    // With Redlock, what only some of the servers are seen to have is listed as waiting.
    const notes = [...held, ...waiting].filter(({ id }) => id.startsWith(OPEN));
    return viewOf(notes.map((note) => ({ ...note, id: note.id.slice(OPEN.length) })));
  }

  /** The schedule was taken up at this moment: earlier ticks are nobody's business. */
  async begin(atMs: number): Promise<void> {
    await this.#write(`base:${atMs}`, "", never);
  }

  /** Puts another beginning in the place of one that a wrong clock has set too late. Notes of runs count as before. */
  async beginAnew(view: NotesView, atMs: number): Promise<void> {
    await this.begin(atMs);
    await this.#remove(view.bases);
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

  /** Removes what is no longer needed, given what was there before a run of this tick ended. */
  async tidy(
    view: NotesView,
    ended: { readonly tickMs: number; readonly claimFence: bigint },
  ): Promise<void> {
    const done = [startId(ended.tickMs, ended.claimFence), ...view.stale];
    const floorMs = this.#newFloor(view, ended.tickMs);
    if (floorMs === undefined) {
      await this.#remove(done);
      return;
    }
    // First the floor: whoever looks in between sees both, and never neither.
    await this.#write(`floor:${floorMs}`, "", never);
    const below = view.ids.filter((id) => momentOf(id) <= floorMs && id !== `floor:${floorMs}`);
    await this.#remove([...new Set([...done, ...below])]);
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

  #newFloor(view: NotesView, newTickMs: number): number | undefined {
    const { history, maxSkewMs, takeover, maxMissed, keepFromMs } = this.#options;
    const ticks = [...new Set([...view.runs.map(({ tickMs }) => tickMs), newTickMs])].sort((a, b) => a - b);
    if (ticks.length <= history + SLACK) return undefined;
    const newestMs = ticks.at(-1) ?? newTickMs;
    const settled = new Set(view.runs.filter(isFinal).map(({ tickMs }) => tickMs));
    // What somebody may still have to run or to take over is kept, unless it piles up.
    const isPatient = ticks.length <= 2 * (history + SLACK) + maxMissed;
    const pendingMs = isPatient ? keepFromMs() : Number.POSITIVE_INFINITY;
    let floorMs: number | undefined;
    for (const tickMs of ticks.slice(0, -history)) {
      // Replicas whose clocks are behind may still be about to begin ticks as old as this.
      if (tickMs > newestMs - maxSkewMs) break;
      if (tickMs >= pendingMs || (takeover && isPatient && !settled.has(tickMs))) break;
      floorMs = tickMs;
    }
    return floorMs;
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

function viewOf(claims: readonly ClaimStatus[]): NotesView {
  const floors = claims.filter(({ id }) => /^(base|floor):\d{1,16}$/.test(id)).map(({ id }) => id);
  const bases = floors.filter((id) => id.startsWith("base:"));
  const floorMs = latestOf(floors);
  const byAttempt = new Map<string, RunNote>();
  const stale = floors.filter((id) => momentOf(id) < (floorMs ?? 0));
  for (const claim of claims) {
    const note = readNote(claim);
    if (note === undefined) continue;
    if (note.tickMs <= (floorMs ?? Number.NEGATIVE_INFINITY)) {
      stale.push(claim.id);
      continue;
    }
    const name = `${note.tickMs}:${note.claimFence}`;
    const other = byAttempt.get(name);
    byAttempt.set(name, other === undefined ? note : joined(other, note));
  }
  return {
    floorMs,
    runs: [...byAttempt.values()].sort(
      (a, b) => a.tickMs - b.tickMs || (a.claimFence < b.claimFence ? -1 : 1),
    ),
    stale,
    bases,
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

function latestOf(ids: readonly string[]): number | undefined {
  return ids.length === 0 ? undefined : Math.max(...ids.map(momentOf));
}

function notSharedText(key: string): string {
  return `"${key}" is held by another lock, so the schedule cannot write its notes there. Give the schedule another name.`;
}
