/**
 * One feed of what happens to keys, for all who watch them: no store pushes that, so it looks at the store twice a second. However many watch,
 * each key is looked at once a round, its status is kept once, and all readers are served from one log.
 */
import { createHash } from "node:crypto";
import { type Clock, systemClock } from "../platform/index.ts";
import {
  type ClaimStatus,
  checkQuery,
  HoldfastError,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  StoreUnavailableError,
} from "../store/index.ts";
import { KeyEntry, KeyLog, type KeyReader } from "./key-log.ts";
import { Rounds } from "./rounds.ts";
import type { Turns } from "./turns.ts";

/** What to watch: one key, or those that begin with a prefix. */
export type Watched = { readonly key: string } | { readonly prefix: string };

export interface KeyChange {
  /** The key as it is now; absent once, when everything that there was in the beginning has been told. */
  readonly status: KeyStatus | undefined;
}

/** How often the store is looked at. */
const LOOK_MS = 500;

/** How many holders and waiters of a key are told, of each. */
const SHOWN_CLAIMS = 100;

/** The most keys of one watch, and about how many bytes the statuses of all watched keys may take. */
const MAX_KEYS = 10_000;
const MAX_BYTES = 33_554_432;

const PAGE_KEYS = 200;

/** What a page of a listing, and so many claims of an event, take of a turn. */
const PAGE_UNITS = 8;
const CLAIMS_PER_UNIT = 8;

/** Something that is looked at in each round. All that is watched is in one of these, and none of these in another. */
interface Cover {
  readonly watched: Watched;
  readonly entries: Map<string, KeyEntry>;
  dueMs: number;
  /** Whether all of it has been looked at once. */
  isComplete: boolean;
  watchers: Watcher[];
}

interface Watcher {
  readonly watched: Watched;
  readonly reader: KeyReader;
  readonly isWanted: (entry: KeyEntry) => boolean;
  /** Whether the log has all that there was in the beginning. */
  isReady: boolean;
  /** Whether it is one key, which was free in the beginning: the log has only keys that are not. */
  isFree: boolean;
  failure: unknown;
  wake: (() => void) | undefined;
}

export class KeyFeed {
  readonly #look: (query: LookQuery) => Promise<LookPage>;
  readonly #turns: Turns;
  readonly #clock: Clock;
  readonly #rounds: Rounds;
  readonly #watchers = new Set<Watcher>();
  readonly #log = new KeyLog();
  #covers: readonly Cover[] = [];
  /** Whether somebody came or went since the covers were found. */
  #isStale = false;
  #round = 0;

  constructor(look: (query: LookQuery) => Promise<LookPage>, turns: Turns, clock: Clock = systemClock) {
    this.#look = look;
    this.#turns = turns;
    this.#clock = clock;
    this.#rounds = new Rounds({ clock, work: () => this.#lookAround() });
  }

  /** What the keys look like, then every change that is noticed, until the signal aborts. A slow reader misses states in between. */
  async *watch(watched: Watched, signal: AbortSignal): AsyncGenerator<KeyChange, void, void> {
    checkQuery(queryOf(watched, undefined));
    const watcher = this.#enter(watched);
    const { reader } = watcher;
    const wake = () => watcher.wake?.();
    signal.addEventListener("abort", wake);
    try {
      let isCaughtUp = false;
      while (!signal.aborted) {
        if (watcher.failure !== undefined) throw watcher.failure;
        if (reader.fellBehind) throw fellBehind();
        if (watcher.isReady && !isCaughtUp && reader.position >= reader.startEnd) {
          isCaughtUp = true;
          if (watcher.isFree && "key" in watched) yield { status: freeKey(watched.key) };
          yield { status: undefined };
          continue;
        }
        if (!watcher.isReady || reader.position >= this.#log.end) {
          await new Promise<void>((resolve) => {
            watcher.wake = resolve;
          });
          continue;
        }
        await this.#turns.take();
        const entry = this.#log.next(reader, watcher.isWanted);
        if (entry === undefined) continue;
        const { status } = entry;
        const units = Math.floor((status.held.length + status.waiting.length) / CLAIMS_PER_UNIT);
        if (units > 0) await this.#turns.take(units);
        yield { status };
      }
    } finally {
      signal.removeEventListener("abort", wake);
      this.#watchers.delete(watcher);
      this.#log.close(reader);
      this.#isStale = true;
    }
  }

  #enter(watched: Watched): Watcher {
    const reader = this.#log.open();
    const isIn = "key" in watched ? isKey(watched.key) : startsWith(watched.prefix);
    const watcher: Watcher = {
      watched,
      reader,
      // What became free before is no news.
      isWanted: (entry) => isIn(entry.status.key) && !(entry.isFree && entry.position < reader.startEnd),
      isReady: false,
      isFree: false,
      failure: undefined,
      wake: undefined,
    };
    this.#watchers.add(watcher);
    this.#isStale = true;
    this.#rounds.start();
    return watcher;
  }

  async #lookAround(): Promise<number | undefined> {
    if (this.#isStale) this.#findCovers();
    for (const cover of this.#covers) {
      const nowMs = this.#clock.monotonicMs();
      if (cover.dueMs > nowMs) continue;
      cover.dueMs = nowMs + LOOK_MS;
      await this.#lookAt(cover);
    }
    if (this.#covers.length === 0) return undefined;
    return Math.min(...this.#covers.map(({ dueMs }) => dueMs));
  }

  /** The fewest prefixes and keys that all that is watched is in. */
  #findCovers(): void {
    this.#isStale = false;
    const former = new Map(this.#covers.map((cover) => [nameOf(cover.watched), cover]));
    const watchers = [...this.#watchers].filter(({ failure }) => failure === undefined);
    const named = watchers.map((watcher) => ({ name: nameOf(watcher.watched), watcher }));
    named.sort((a, b) => (a.name < b.name ? -1 : 1));
    const covers: Cover[] = [];
    for (const { name, watcher } of named) {
      const { watched } = watcher;
      const last = covers.at(-1);
      if (last !== undefined && isWithin(watched, last.watched)) {
        last.watchers.push(watcher);
        continue;
      }
      const cover = former.get(name) ?? newCover(watched);
      cover.watchers = [watcher];
      covers.push(cover);
    }
    this.#moveEntries(covers);
    this.#covers = covers;
    for (const cover of covers) this.#tell(cover);
  }

  /** Entries go with the cover that they are in now, or are forgotten. */
  #moveEntries(covers: readonly Cover[]): void {
    const kept = new Set(covers);
    for (const former of this.#covers) {
      if (kept.has(former)) continue;
      for (const [key, entry] of former.entries) {
        const cover = coverOf(covers, key);
        if (cover === undefined || cover.entries.has(key)) this.#log.drop(entry);
        else cover.entries.set(key, entry);
      }
    }
  }

  async #lookAt(cover: Cover): Promise<void> {
    const round = ++this.#round;
    try {
      let keys = 0;
      for await (const status of this.#pagesOf(cover.watched)) {
        keys++;
        const entry = cover.entries.get(status.key) ?? new KeyEntry(status);
        cover.entries.set(status.key, entry);
        entry.round = round;
        this.#log.put(entry, status, lookOf(status), bytesOf(status));
        if (keys > MAX_KEYS || this.#log.bytes > MAX_BYTES) throw tooMany();
      }
      for (const [key, entry] of cover.entries) {
        if (entry.round === round) continue;
        cover.entries.delete(key);
        this.#log.free(entry, freeKey(key), FREE_LOOK);
      }
      cover.isComplete = true;
    } catch (error) {
      this.#fail(cover, error);
    }
    this.#tell(cover);
  }

  async *#pagesOf(watched: Watched): AsyncGenerator<KeyStatus, void, void> {
    let cursor: string | undefined;
    do {
      await this.#turns.take(PAGE_UNITS);
      const page = await this.#look(queryOf(watched, cursor));
      yield* page.keys;
      cursor = page.cursor;
    } while (cursor !== undefined);
  }

  /** Those who watch less than the cover may go on if that was too much. */
  #fail(cover: Cover, error: unknown): void {
    const isTooMuch = error instanceof HoldfastError && error.code === "UNSUPPORTED";
    for (const watcher of cover.watchers) {
      if (isTooMuch && nameOf(watcher.watched) !== nameOf(cover.watched)) continue;
      watcher.failure = error;
      watcher.wake?.();
    }
    this.#isStale = true;
  }

  /** Wakes those for whom there is something in the log. */
  #tell(cover: Cover): void {
    for (const watcher of cover.watchers) {
      const { watched, reader } = watcher;
      if (cover.isComplete && !watcher.isReady) {
        watcher.isReady = true;
        watcher.isFree = "key" in watched && !cover.entries.has(watched.key);
        reader.startEnd = this.#log.end;
        watcher.wake?.();
      } else if (reader.position < this.#log.end) watcher.wake?.();
    }
  }
}

function newCover(watched: Watched): Cover {
  return { watched, entries: new Map(), dueMs: Number.NEGATIVE_INFINITY, isComplete: false, watchers: [] };
}

function queryOf(watched: Watched, cursor: string | undefined): LookQuery {
  if ("key" in watched) return { key: watched.key, maxClaims: SHOWN_CLAIMS };
  const query = { prefix: watched.prefix, limit: PAGE_KEYS, maxClaims: SHOWN_CLAIMS };
  return cursor === undefined ? query : { ...query, cursor };
}

const isKey = (wanted: string) => (key: string) => key === wanted;
const startsWith = (prefix: string) => (key: string) => key.startsWith(prefix);

/** A text for each that sorts a prefix before all that begins with it. Neither can contain a control character. */
function nameOf(watched: Watched): string {
  return "key" in watched ? `${watched.key}\u0001` : `${watched.prefix}\u0000`;
}

function isWithin(watched: Watched, cover: Watched): boolean {
  const text = "key" in watched ? watched.key : watched.prefix;
  return "key" in cover ? "key" in watched && text === cover.key : text.startsWith(cover.prefix);
}

/** The cover that a key is in, among those that are sorted. */
function coverOf(covers: readonly Cover[], key: string): Cover | undefined {
  let low = 0;
  let high = covers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (nameOf((covers[middle] as Cover).watched) <= `${key}\u0001`) low = middle + 1;
    else high = middle;
  }
  const cover = covers[low - 1];
  return cover !== undefined && isWithin({ key }, cover.watched) ? cover : undefined;
}

/** What counts as a change: who holds and who waits, not how long they still may. */
function lookOf(status: KeyStatus): string {
  const held = status.held.map(({ id, fence }) => `${id} ${fence}`);
  const waiting = status.waiting.map(({ id }) => id);
  const text = JSON.stringify([status.heldCount, status.waitingCount, held, waiting]);
  return text.length < 100 ? text : createHash("sha1").update(text).digest("base64");
}

function bytesOf({ key, held, waiting }: KeyStatus): number {
  return [...held, ...waiting].reduce((bytes, claim) => bytes + bytesOfClaim(claim), 2 * key.length + 300);
}

function bytesOfClaim({ id, owner, info, application }: ClaimStatus): number {
  return 200 + 2 * (id.length + owner.length + info.length + application.length);
}

function freeKey(key: string): KeyStatus {
  return { key, fence: 0n, held: [], heldCount: 0, heldWeight: 0, waiting: [], waitingCount: 0 };
}

const FREE_LOOK = lookOf(freeKey(""));

function tooMany(): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `More than ${MAX_KEYS} keys, or more than ${MAX_BYTES} bytes, are too many to watch. Use a longer prefix, or List.`,
  );
}

function fellBehind(): HoldfastError {
  return new StoreUnavailableError("The watch fell too far behind the changes. Start it again.");
}
