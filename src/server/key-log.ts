/**
 * What keys look like, in the order in which they last changed. A reader is a place in it: from the start it finds every key as it is now, and
 * after that what changes. A key that changes again moves to the end, so the log is as long as there are keys, and a slow reader costs nothing.
 *
 * A key that has become free stays until all readers have seen it. Those that are too far behind for that are told so.
 */
import type { KeyStatus } from "../store/index.ts";

export class KeyEntry {
  status: KeyStatus;
  /** What counts as a change of it. */
  look = "";
  isFree = false;
  /** Its place in the log. */
  position = -1;
  /** About how many bytes it takes. */
  bytes = 0;
  /** The round that it was last seen in. */
  round = 0;

  constructor(status: KeyStatus) {
    this.status = status;
  }
}

/** Where somebody is in the log. */
export interface KeyReader {
  position: number;
  /** Up to where the log told what there was in the beginning. */
  startEnd: number;
  /** Whether keys became free that it can no longer be told of. */
  fellBehind: boolean;
}

/** The most keys that are kept for slow readers after they have become free. */
const MAX_FREE = 10_000;

/** How many slots a reader looks through at a time. */
const SLOTS_AT_ONCE = 2_000;

/** How many slots there are before the first compaction, and how many more than twice the entries before each later one. */
const SPARE_SLOTS = 1_000;

export class KeyLog {
  #slots: (KeyEntry | undefined)[] = [];
  readonly #readers = new Set<KeyReader>();
  #compactFrom = SPARE_SLOTS;
  /** About how many bytes all entries take. */
  bytes = 0;

  get end(): number {
    return this.#slots.length;
  }

  open(): KeyReader {
    const reader = { position: 0, startEnd: 0, fellBehind: false };
    this.#readers.add(reader);
    return reader;
  }

  close(reader: KeyReader): void {
    this.#readers.delete(reader);
    if (this.#readers.size === 0) this.#compact();
  }

  /** The next entry that is wanted. Undefined also if there was none among those that are looked through at a time. */
  next(reader: KeyReader, isWanted: (entry: KeyEntry) => boolean): KeyEntry | undefined {
    const untilSlot = Math.min(this.end, reader.position + SLOTS_AT_ONCE);
    while (reader.position < untilSlot) {
      const entry = this.#slots[reader.position++];
      if (entry !== undefined && isWanted(entry)) return entry;
    }
    return undefined;
  }

  /** The key of this entry looks like this now. */
  put(entry: KeyEntry, status: KeyStatus, look: string, bytes: number): void {
    entry.status = status;
    this.bytes += bytes - entry.bytes;
    entry.bytes = bytes;
    if (entry.look === look) return;
    entry.look = look;
    this.#append(entry);
  }

  /** The key of this entry is free, and the entry is not used again. */
  free(entry: KeyEntry, status: KeyStatus, look: string): void {
    entry.isFree = true;
    this.put(entry, status, look, 0);
  }

  /** Forgets the entry, without telling anybody. */
  drop(entry: KeyEntry): void {
    this.bytes -= entry.bytes;
    this.#slots[entry.position] = undefined;
  }

  #append(entry: KeyEntry): void {
    if (entry.position >= 0) this.#slots[entry.position] = undefined;
    entry.position = this.#slots.length;
    this.#slots.push(entry);
    if (this.#slots.length > this.#compactFrom) this.#compact();
  }

  /** Leaves out empty slots, and keys that became free before what readers have yet to see. Places move. */
  #compact(): void {
    let seen = this.#slots.length;
    for (const reader of this.#readers) seen = Math.min(seen, reader.position);
    let free = 0;
    for (const entry of this.#slots) if (entry?.isFree === true && entry.position >= seen) free++;
    const moved = new Uint32Array(this.#slots.length + 1);
    const slots: KeyEntry[] = [];
    /** Up to where keys that became free are missing. */
    let missing = 0;
    for (const [index, entry] of this.#slots.entries()) {
      moved[index] = slots.length;
      if (entry === undefined) continue;
      if (entry.isFree && (index < seen || free-- > MAX_FREE)) {
        if (index >= seen) missing = index + 1;
        continue;
      }
      entry.position = slots.length;
      slots.push(entry);
    }
    moved[this.#slots.length] = slots.length;
    for (const reader of this.#readers) {
      if (reader.position < missing) reader.fellBehind = true;
      reader.position = moved[reader.position] ?? 0;
      reader.startEnd = moved[reader.startEnd] ?? 0;
    }
    this.#slots = slots;
    this.#compactFrom = SPARE_SLOTS + 2 * slots.length;
  }
}
