/**
 * One feed of key changes for all watchers. No store pushes changes, so the feed polls the store twice a second. Each watched key
 * is read once per poll and kept once, for any number of watchers, which all read from one log.
 */
import { type Clock, systemClock } from "../platform/index.ts";
import {
  checkQuery,
  HoldfastError,
  type KeyStatus,
  type LookPage,
  type LookQuery,
  StoreUnavailableError,
} from "../store/index.ts";
import { freeKey, KeyEntry, KeyLog, type KeyReader } from "./key-log.ts";
import { Poller } from "./poller.ts";
import type { Scheduler } from "./scheduler.ts";

/** One key, or all keys that begin with a prefix. */
export type Watched = { readonly key: string } | { readonly prefix: string };

export interface KeyChange {
  /** The present status. Absent once, after all keys that existed at the beginning. */
  readonly status: KeyStatus | undefined;
}

const LOOK_MS = 500;

/** The limit of holders, and of waiters, in an event. */
const SHOWN_CLAIMS = 100;

/** The limits of keys in one watch, and of the memory for the statuses of all watched keys. */
const MAX_KEYS = 10_000;
const MAX_BYTES = 33_554_432;

const PAGE_KEYS = 200;

/** The work of reading a page of keys, and of sending claims, in units of the scheduler. */
const PAGE_UNITS = 8;
const CLAIMS_PER_UNIT = 8;

/** A key or prefix that the feed reads. No range is within another one, and each watch is within one range. */
interface Range {
  readonly watched: Watched;
  readonly entries: Map<string, KeyEntry>;
  dueMs: number;
  /** Whether all of it was read once. */
  isComplete: boolean;
  watchers: Watcher[];
}

interface Watcher {
  readonly watched: Watched;
  readonly reader: KeyReader;
  readonly isWanted: (entry: KeyEntry) => boolean;
  /** Whether the log contains all keys that existed at the beginning. */
  isReady: boolean;
  /** Whether the watch is for one key that was free at the beginning. The log has no entry for such a key. */
  isFree: boolean;
  failure: unknown;
  wake: (() => void) | undefined;
}

export class KeyFeed {
  readonly #look: (query: LookQuery) => Promise<LookPage>;
  readonly #scheduler: Scheduler;
  readonly #clock: Clock;
  readonly #poller: Poller;
  readonly #watchers = new Set<Watcher>();
  readonly #log = new KeyLog();
  #ranges: readonly Range[] = [];
  /** Whether a watcher came or went since the ranges were chosen. */
  #isStale = false;
  #pollCount = 0;

  constructor(
    look: (query: LookQuery) => Promise<LookPage>,
    scheduler: Scheduler,
    clock: Clock = systemClock,
  ) {
    this.#look = look;
    this.#scheduler = scheduler;
    this.#clock = clock;
    this.#poller = new Poller(clock, () => this.#readRanges());
  }

  /** Yields the present keys, then changes, until the signal aborts. A slow reader misses intermediate states. */
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
        await this.#scheduler.take();
        const entry = this.#log.next(reader, watcher.isWanted);
        if (entry === undefined) continue;
        const { status } = entry;
        const units = Math.floor((status.held.length + status.waiting.length) / CLAIMS_PER_UNIT);
        if (units > 0) await this.#scheduler.take(units);
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
      // Keys that became free before the beginning are skipped.
      isWanted: (entry) => isIn(entry.status.key) && !(entry.isFree && entry.position < reader.startEnd),
      isReady: false,
      isFree: false,
      failure: undefined,
      wake: undefined,
    };
    this.#watchers.add(watcher);
    this.#isStale = true;
    this.#poller.start();
    return watcher;
  }

  async #readRanges(): Promise<number | undefined> {
    if (this.#isStale) this.#chooseRanges();
    for (const range of this.#ranges) {
      const nowMs = this.#clock.monotonicMs();
      if (range.dueMs > nowMs) continue;
      range.dueMs = nowMs + LOOK_MS;
      await this.#read(range);
    }
    if (this.#ranges.length === 0) return undefined;
    return Math.min(...this.#ranges.map(({ dueMs }) => dueMs));
  }

  /** Chooses the fewest keys and prefixes that contain all watches. */
  #chooseRanges(): void {
    this.#isStale = false;
    const former = new Map(this.#ranges.map((range) => [nameOf(range.watched), range]));
    const watchers = [...this.#watchers].filter(({ failure }) => failure === undefined);
    const named = watchers.map((watcher) => ({ name: nameOf(watcher.watched), watcher }));
    named.sort((a, b) => (a.name < b.name ? -1 : 1));
    const ranges: Range[] = [];
    for (const { name, watcher } of named) {
      const { watched } = watcher;
      const last = ranges.at(-1);
      if (last !== undefined && isWithin(watched, last.watched)) {
        last.watchers.push(watcher);
        continue;
      }
      const range = former.get(name) ?? newRange(watched);
      range.watchers = [watcher];
      ranges.push(range);
    }
    this.#moveEntries(ranges);
    this.#ranges = ranges;
    for (const range of ranges) this.#wake(range);
  }

  /** Moves entries to the range that contains them now, and drops the others. */
  #moveEntries(ranges: readonly Range[]): void {
    const kept = new Set(ranges);
    for (const former of this.#ranges) {
      if (kept.has(former)) continue;
      for (const [key, entry] of former.entries) {
        const range = rangeOf(ranges, key);
        if (range === undefined || range.entries.has(key)) this.#log.drop(entry);
        else range.entries.set(key, entry);
      }
    }
  }

  async #read(range: Range): Promise<void> {
    const poll = ++this.#pollCount;
    try {
      let keys = 0;
      for await (const status of this.#pagesOf(range.watched)) {
        keys++;
        const entry = range.entries.get(status.key) ?? new KeyEntry(status);
        range.entries.set(status.key, entry);
        entry.poll = poll;
        this.#log.put(entry, status);
        if (keys > MAX_KEYS || this.#log.bytes > MAX_BYTES) throw tooMany();
      }
      for (const [key, entry] of range.entries) {
        if (entry.poll === poll) continue;
        range.entries.delete(key);
        this.#log.free(entry);
      }
      range.isComplete = true;
    } catch (error) {
      this.#fail(range, error);
    }
    this.#wake(range);
  }

  async *#pagesOf(watched: Watched): AsyncGenerator<KeyStatus, void, void> {
    let cursor: string | undefined;
    do {
      await this.#scheduler.take(PAGE_UNITS);
      const page = await this.#look(queryOf(watched, cursor));
      yield* page.keys;
      cursor = page.cursor;
    } while (cursor !== undefined);
  }

  /** If the range has too many keys, watchers of a smaller part of it go on. */
  #fail(range: Range, error: unknown): void {
    const isTooMuch = error instanceof HoldfastError && error.code === "UNSUPPORTED";
    for (const watcher of range.watchers) {
      if (isTooMuch && nameOf(watcher.watched) !== nameOf(range.watched)) continue;
      watcher.failure = error;
      watcher.wake?.();
    }
    this.#isStale = true;
  }

  /** Wakes the watchers that have unread entries in the log. */
  #wake(range: Range): void {
    for (const watcher of range.watchers) {
      const { watched, reader } = watcher;
      if (range.isComplete && !watcher.isReady) {
        watcher.isReady = true;
        watcher.isFree = "key" in watched && !range.entries.has(watched.key);
        reader.startEnd = this.#log.end;
        watcher.wake?.();
      } else if (reader.position < this.#log.end) watcher.wake?.();
    }
  }
}

function newRange(watched: Watched): Range {
  return { watched, entries: new Map(), dueMs: Number.NEGATIVE_INFINITY, isComplete: false, watchers: [] };
}

function queryOf(watched: Watched, cursor: string | undefined): LookQuery {
  if ("key" in watched) return { key: watched.key, maxClaims: SHOWN_CLAIMS };
  const query = { prefix: watched.prefix, limit: PAGE_KEYS, maxClaims: SHOWN_CLAIMS };
  return cursor === undefined ? query : { ...query, cursor };
}

const isKey = (wanted: string) => (key: string) => key === wanted;
const startsWith = (prefix: string) => (key: string) => key.startsWith(prefix);

/** Sorts a prefix before the keys and prefixes that begin with it. Neither can contain a control character. */
function nameOf(watched: Watched): string {
  return "key" in watched ? `${watched.key}\u0001` : `${watched.prefix}\u0000`;
}

function isWithin(watched: Watched, range: Watched): boolean {
  const text = "key" in watched ? watched.key : watched.prefix;
  return "key" in range ? "key" in watched && text === range.key : text.startsWith(range.prefix);
}

/** Finds the range of a key by binary search. */
function rangeOf(ranges: readonly Range[], key: string): Range | undefined {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (nameOf((ranges[middle] as Range).watched) <= `${key}\u0001`) low = middle + 1;
    else high = middle;
  }
  const range = ranges[low - 1];
  return range !== undefined && isWithin({ key }, range.watched) ? range : undefined;
}

function tooMany(): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `More than ${MAX_KEYS} keys, or more than ${MAX_BYTES} bytes, are too many to watch. Use a longer prefix, or List.`,
  );
}

function fellBehind(): HoldfastError {
  return new StoreUnavailableError("The watch fell too far behind the changes. Start it again.");
}
