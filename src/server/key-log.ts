/**
 * The statuses of keys, in the order of their last changes. A reader is a position in this log: it reads every present key first,
 * and then changes. A key that changes again moves to the end, so the log has one entry per key and a slow reader costs nothing.
 *
 * A key that became free stays until all readers have read it, within a bound. Readers that are too far behind get an error.
 */
import { createHash } from "node:crypto";
import type { ClaimStatus, KeyStatus } from "../store/index.ts";

export class KeyEntry {
  status: KeyStatus;
  /** A change of the summary is a change of the key. */
  summary = "";
  isFree = false;
  position = -1;
  /** Approximate. */
  bytes = 0;
  /** The number of the poll that last read it. */
  poll = 0;

  constructor(status: KeyStatus) {
    this.status = status;
  }
}

export interface KeyReader {
  position: number;
  /** The end of the entries that existed at the beginning. */
  startEnd: number;
  /** Whether entries of free keys were dropped before it read them. */
  fellBehind: boolean;
}

/** The limit of free keys that are kept for slow readers. */
const MAX_FREE = 10_000;

/** The slots that a reader scans at a time. */
const SLOTS_AT_ONCE = 2_000;

/** Compaction runs when there are this many slots more than twice the entries. */
const SPARE_SLOTS = 1_000;

export class KeyLog {
  #slots: (KeyEntry | undefined)[] = [];
  readonly #readers = new Set<KeyReader>();
  #compactFrom = SPARE_SLOTS;
  /** The approximate memory of all entries. */
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

  /** The next wanted entry. Undefined if there is none among the slots that are scanned at a time. */
  next(reader: KeyReader, isWanted: (entry: KeyEntry) => boolean): KeyEntry | undefined {
    const untilSlot = Math.min(this.end, reader.position + SLOTS_AT_ONCE);
    while (reader.position < untilSlot) {
      const entry = this.#slots[reader.position++];
      if (entry !== undefined && isWanted(entry)) return entry;
    }
    return undefined;
  }

  /** Updates the entry, and moves it to the end if its summary changed. */
  put(entry: KeyEntry, status: KeyStatus): void {
    const bytes = entry.isFree ? 0 : bytesOf(status);
    const summary = summaryOf(status);
    entry.status = status;
    this.bytes += bytes - entry.bytes;
    entry.bytes = bytes;
    if (entry.summary === summary) return;
    entry.summary = summary;
    this.#append(entry);
  }

  /** Records that the key is free. The entry is not used again. */
  free(entry: KeyEntry): void {
    entry.isFree = true;
    this.put(entry, freeKey(entry.status.key));
  }

  /** Removes the entry without a change for readers. */
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

  /** Removes empty slots, and free keys that all readers have read. Positions change. */
  #compact(): void {
    let readByAll = this.#slots.length;
    for (const reader of this.#readers) readByAll = Math.min(readByAll, reader.position);
    let free = 0;
    for (const entry of this.#slots) if (entry?.isFree === true && entry.position >= readByAll) free++;
    const moved = new Uint32Array(this.#slots.length + 1);
    const slots: KeyEntry[] = [];
    /** The end of the dropped entries that some reader has not read. */
    let droppedEnd = 0;
    for (const [index, entry] of this.#slots.entries()) {
      moved[index] = slots.length;
      if (entry === undefined) continue;
      if (entry.isFree && (index < readByAll || free-- > MAX_FREE)) {
        if (index >= readByAll) droppedEnd = index + 1;
        continue;
      }
      entry.position = slots.length;
      slots.push(entry);
    }
    moved[this.#slots.length] = slots.length;
    for (const reader of this.#readers) {
      if (reader.position < droppedEnd) reader.fellBehind = true;
      reader.position = moved[reader.position] ?? 0;
      reader.startEnd = moved[reader.startEnd] ?? 0;
    }
    this.#slots = slots;
    this.#compactFrom = SPARE_SLOTS + 2 * slots.length;
  }
}

/** A key changes when its summary changes: holders and waiters count, their times of expiry do not. */
function summaryOf(status: KeyStatus): string {
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

export function freeKey(key: string): KeyStatus {
  return { key, fence: 0n, held: [], heldCount: 0, heldWeight: 0, waiting: [], waitingCount: 0 };
}
