/**
 * How changes stand in the log, and cross to the thread: for each how long its key and its row are, in four bytes each, and then
 * both. No row says that nothing is to be written, or in the log that the record was removed. So what crosses goes into the log in one
 * piece, and nothing is taken apart and put together again item by item, on either side.
 *
 * In front of those that cross stand the versions which they expect. They cannot stand in the rows: these get the next ones, and a request may be
 * tried again.
 */
import { HEAD_BYTES, writeHead, writeVersion } from "./row-format.js";

/**
 * @typedef {import("../cas/index.ts").Change} Change
 *
 * @typedef {object} PackedChanges
 * @property {number} count How many changes there are.
 * @property {Uint8Array} bytes The version that each of them expects, 0 where there must be no record; then all changes. The versions of their rows
 * are left to the thread.
 */

/** What stands before a key: how long that is, … */
const KEY_BYTES_AT = 0;
/** … and how long the row is. */
const ROW_BYTES_AT = 4;
const LENGTHS_BYTES = 8;
const VERSION_BYTES = Float64Array.BYTES_PER_ELEMENT;

const BLANK_LENGTHS = " ".repeat(LENGTHS_BYTES);
const BLANK_HEAD = " ".repeat(HEAD_BYTES);
const encoder = new TextEncoder();

/**
 * @param {readonly Change[]} changes
 * @returns {PackedChanges}
 */
export function packChanges(changes) {
  const count = changes.length;
  let all = "";
  for (const { key, text } of changes) {
    all += text === undefined ? BLANK_LENGTHS + key : BLANK_LENGTHS + key + BLANK_HEAD + text;
  }
  const from = startOf(count);
  const bytes = new Uint8Array(from + all.length);
  // Where it fits, each character is one byte.
  if (encoder.encodeInto(all, bytes.subarray(from)).read === all.length) {
    writeHeads(bytes, changes, charactersOf);
    return { count, bytes };
  }
  const longer = new Uint8Array(from + Buffer.byteLength(all));
  encoder.encodeInto(all, longer.subarray(from));
  writeHeads(longer, changes, Buffer.byteLength);
  return { count, bytes: longer };
}

/**
 * Where the first of so many changes begins.
 *
 * @param {number} count
 */
function startOf(count) {
  return count * VERSION_BYTES;
}

/**
 * Fills in what was left blank.
 *
 * @param {Uint8Array} bytes
 * @param {readonly Change[]} changes
 * @param {(text: string) => number} lengthOf
 */
function writeHeads(bytes, changes, lengthOf) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let expectedAt = 0;
  let at = startOf(changes.length);
  for (const { key, expected, text, keepUntilMs, idle } of changes) {
    writeVersion(view, expectedAt, expected === undefined ? 0 : Number(expected));
    expectedAt += VERSION_BYTES;
    const keyBytes = lengthOf(key);
    const rowBytes = text === undefined ? 0 : HEAD_BYTES + lengthOf(text);
    writeLengths(view, at, keyBytes, rowBytes);
    const rowAt = at + LENGTHS_BYTES + keyBytes;
    if (rowBytes > 0) writeHead(view, rowAt, 0, keepUntilMs, idle);
    at = rowAt + rowBytes;
  }
}

/** @param {string} text */
function charactersOf(text) {
  return text.length;
}

/**
 * @param {DataView} view
 * @param {number} at
 * @param {number} keyBytes
 * @param {number} rowBytes
 */
function writeLengths(view, at, keyBytes, rowBytes) {
  view.setUint32(at + KEY_BYTES_AT, keyBytes, true);
  view.setUint32(at + ROW_BYTES_AT, rowBytes, true);
}

const nothing = Buffer.alloc(0);

/**
 * One change.
 *
 * @param {Uint8Array} key
 * @param {Uint8Array} row
 */
export function packChange(key, row = nothing) {
  const lengths = new DataView(new ArrayBuffer(LENGTHS_BYTES));
  writeLengths(lengths, 0, key.length, row.length);
  return Buffer.concat([new Uint8Array(lengths.buffer), key, row]);
}

/** Goes through changes one by one. */
export class ChangeReader {
  /** All of them. @type {Buffer} */
  bytes;
  /** @type {DataView} */
  #view;
  #keyAt = 0;
  /** @type {string | undefined} */
  #name;
  /** Where the change begins, … */
  at = 0;
  /** … where its row does, … */
  rowAt = 0;
  /** … and where the next change does. */
  end = 0;

  /**
   * @param {Uint8Array} bytes
   * @param {number} from Where the first one begins.
   */
  constructor(bytes, from = 0) {
    this.bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.end = from;
  }

  /**
   * Those that have crossed to the thread.
   *
   * @param {PackedChanges} packed
   */
  static of({ count, bytes }) {
    return new ChangeReader(bytes, startOf(count));
  }

  /**
   * The version that a change expects which has crossed to the thread.
   *
   * @param {number} place
   */
  expectedAt(place) {
    return this.#view.getFloat64(place * VERSION_BYTES);
  }

  /** Goes on to the next change. */
  next() {
    this.goTo(this.end);
  }

  /**
   * Goes to a change.
   *
   * @param {number} at Where it begins.
   */
  goTo(at) {
    this.at = at;
    this.#name = undefined;
    this.#keyAt = at + LENGTHS_BYTES;
    this.rowAt = this.#keyAt + this.#view.getUint32(at + KEY_BYTES_AT, true);
    this.end = this.rowAt + this.#view.getUint32(at + ROW_BYTES_AT, true);
  }

  get key() {
    return this.bytes.subarray(this.#keyAt, this.rowAt);
  }

  /** The key as a text that no other key has: its bytes as characters. */
  get name() {
    this.#name ??= this.bytes.toString("latin1", this.#keyAt, this.rowAt);
    return this.#name;
  }

  /** Without bytes where there is none. */
  get row() {
    return this.bytes.subarray(this.rowAt, this.end);
  }

  get hasRow() {
    return this.rowAt < this.end;
  }

  /**
   * Gives the row this version.
   *
   * @param {number} version
   */
  setVersion(version) {
    writeVersion(this.#view, this.rowAt, version);
  }

  /**
   * All changes from one place up to another.
   *
   * @param {number} from
   * @param {number} to
   */
  between(from, to) {
    return this.bytes.subarray(from, to);
  }
}
