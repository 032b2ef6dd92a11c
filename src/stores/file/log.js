/**
 * What was changed since it was last put into `locks.mdb`: two files, of which one is written to while the other is being put there.
 * An entry is what one transaction has changed. It is added in that transaction, and is on the disk after one flush: the only one that
 * a grant waits for.
 *
 * A log has a number, its generation, and is in the first file or the second by that. Each entry has a sum over itself and the sum
 * of the entry before it, also of the log before. So what was in the file before, or is there in part, does not count: after a loss of power
 * the log is what was flushed, and maybe more of what followed, without a gap.
 *
 * An entry is four numbers (how long it is, its sum, and the generation in two parts), and then its changes (change-format.js). The last one
 * is the folder's time.
 */
import { closeSync, constants, fdatasyncSync, fstatSync, openSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { ChangeReader } from "./change-format.js";
import { codedError } from "./failures.js";
import { grow } from "./file-heads.js";

/**
 * @typedef {object} LogContents
 * @property {Buffer} bytes
 * @property {Map<string, number>} changes Where the last one of each key begins.
 * @property {Buffer | undefined} time The folder's, with the last entry: folder-state.js.
 * @property {number} end Where the next entry would begin, counted from where the bytes do.
 * @property {number} sum That of the last entry.
 */

const HEAD_BYTES = 16;
const LENGTH_AT = 0;
const SUM_AT = 4;
/** From here on, everything counts for the sum. */
const SUMMED_AT = 8;
const GENERATION_AT = 8;
const GENERATION_BYTES = 6;
/** What no entry begins with. */
const NO_ENTRY = Buffer.alloc(HEAD_BYTES);
/** How much room an entry has at first. */
const ENTRY_BYTES = 65_536;

/** Puts an entry together. */
export class LogEntry {
  #bytes = Buffer.allocUnsafe(ENTRY_BYTES);
  #end = HEAD_BYTES;

  begin() {
    this.#end = HEAD_BYTES;
  }

  /** @param {Uint8Array} changes One or more. */
  add(changes) {
    const at = this.#end;
    const end = at + changes.length;
    if (end > this.#bytes.length) {
      const larger = Buffer.allocUnsafe(2 * end);
      this.#bytes.copy(larger, 0, 0, at);
      this.#bytes = larger;
    }
    this.#bytes.set(changes, at);
    this.#end = end;
  }

  /**
   * @param {number} generation
   * @param {number} sumBefore That of the entry before it.
   * @returns {{ bytes: Buffer, sum: number }} The bytes are good until another one is begun.
   */
  end(generation, sumBefore) {
    const bytes = this.#bytes.subarray(0, this.#end);
    bytes.writeUInt32LE(bytes.length, LENGTH_AT);
    bytes.fill(0, GENERATION_AT, HEAD_BYTES);
    bytes.writeUIntLE(generation, GENERATION_AT, GENERATION_BYTES);
    const sum = crc32(bytes.subarray(SUMMED_AT), sumBefore);
    bytes.writeUInt32LE(sum, SUM_AT);
    return { bytes, sum };
  }
}

/** Both files. */
export class Log {
  /** @type {readonly [number, number]} */
  #descriptors;
  /** How large they are, or were. They never shrink. */
  #sizes = [0, 0];

  /** @param {string} folder */
  constructor(folder) {
    const openOne = (/** @type {string} */ name) =>
      openSync(join(folder, name), constants.O_RDWR | constants.O_CREAT);
    const first = openOne("log-0");
    try {
      this.#descriptors = [first, openOne("log-1")];
    } catch (error) {
      closeSync(first);
      throw error;
    }
  }

  /** Keeps some room in both, so that what is there can still be given back when the disk is full. While nobody writes to them. */
  makeRoom() {
    for (const descriptor of this.#descriptors) grow(descriptor, 1);
  }

  /**
   * Writes an entry, and does not wait until it is on the disk. The file grows ahead of that, so that a flush has only contents to write.
   *
   * @param {number} generation
   * @param {number} at
   * @param {Uint8Array} bytes
   */
  write(generation, at, bytes) {
    const file = this.#file(generation);
    const size = /** @type {number} */ (this.#sizes[generation % 2]);
    if (at + bytes.length > size) {
      this.#sizes[generation % 2] = grow(file, Math.max(at + bytes.length, Math.min(2 * size, LOG_BYTES)));
    }
    let done = 0;
    while (done < bytes.length) done += writeSync(file, bytes, done, bytes.length - done, at + done);
  }

  /**
   * Ends a log. An entry may be behind its last one whose transaction has failed, or was killed: what follows is in the next log, and must
   * not be cut off by it.
   *
   * @param {number} generation
   * @param {number} at
   */
  end(generation, at) {
    // Where the file ends there is none, and the disk may be full.
    if (at + HEAD_BYTES <= fstatSync(this.#file(generation)).size) this.write(generation, at, NO_ENTRY);
  }

  /**
   * Puts all on the disk that was written to a log, by whichever process. Where the system has failed to write any of it since this was
   * opened, whoever asked for that, it throws once.
   *
   * @param {number} generation
   */
  flush(generation) {
    fdatasyncSync(this.#file(generation));
  }

  /**
   * What a log says, from a place on, up to a place or to where its entries end.
   *
   * @param {number} generation
   * @param {number} sumBefore That of the entry before.
   * @param {{ from?: number, upTo?: number }} part
   * @returns {LogContents}
   */
  read(generation, sumBefore, { from = 0, upTo = Number.POSITIVE_INFINITY } = {}) {
    const bytes = readPart(this.#file(generation), from, upTo);
    /** @type {LogContents} */
    const contents = { bytes, changes: new Map(), time: undefined, end: 0, sum: sumBefore };
    for (;;) {
      const at = contents.end;
      const end = endOfEntry(bytes, at);
      if (end === undefined) return contents;
      const sum = crc32(bytes.subarray(at + SUMMED_AT, end), contents.sum);
      if (bytes.readUIntLE(at + GENERATION_AT, GENERATION_BYTES) !== generation) return contents;
      if (bytes.readUInt32LE(at + SUM_AT) !== sum) return contents;
      addChanges(contents, at + HEAD_BYTES, end);
      contents.end = end;
      contents.sum = sum;
    }
  }

  close() {
    for (const descriptor of this.#descriptors) closeSync(descriptor);
  }

  /** @param {number} generation */
  #file(generation) {
    return /** @type {number} */ (this.#descriptors[generation % 2]);
  }
}

/**
 * A log whose entries were written has lost some of them.
 *
 * @param {number} generation
 * @param {number} whole
 * @param {number} end
 */
export function damagedLog(generation, whole, end) {
  return codedError("DAMAGED_LOG", `of log ${generation}, ${whole} of ${end} bytes are whole`);
}

/** From here on, a log is put into `locks.mdb`. */
export const LOG_BYTES = 4_194_304;

/**
 * @param {number} descriptor
 * @param {number} from
 * @param {number} upTo
 */
function readPart(descriptor, from, upTo) {
  const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(fstatSync(descriptor).size, upTo) - from));
  let done = 0;
  while (done < bytes.length) {
    const count = readSync(descriptor, bytes, done, bytes.length - done, from + done);
    if (count === 0) break;
    done += count;
  }
  return bytes.subarray(0, done);
}

/**
 * @param {Buffer} bytes
 * @param {number} at
 * @returns {number | undefined}
 */
function endOfEntry(bytes, at) {
  if (at + HEAD_BYTES > bytes.length) return undefined;
  const length = bytes.readUInt32LE(at + LENGTH_AT);
  return length < HEAD_BYTES || at + length > bytes.length ? undefined : at + length;
}

/**
 * @param {LogContents} contents
 * @param {number} from Where the changes of an entry begin whose sum is right, …
 * @param {number} to … and where they end.
 */
function addChanges(contents, from, to) {
  const change = new ChangeReader(contents.bytes, from);
  while (change.end < to) {
    change.next();
    if (change.end === to) contents.time = change.row;
    else contents.changes.set(change.name, change.at);
  }
}

/**
 * The last change of each key.
 *
 * @param {LogContents} contents
 * @returns {Iterable<{ key: Buffer, row: Buffer }>} Without bytes in its row, the record was removed.
 */
export function* changesIn({ bytes, changes }) {
  const change = new ChangeReader(bytes);
  for (const at of changes.values()) {
    change.goTo(at);
    yield change;
  }
}
