/**
 * How changes stand in the log, and cross to the thread: for each how long its key and its row are, in four bytes each, and then
 * both. No row says that nothing is to be written, or in the log that the record was removed. So what crosses goes into the log in one
 * piece, and nothing is taken apart and put together again item by item, on either side.
 */
import { HEAD_BYTES, writeHead, writeVersion } from "./row-format.js";

/**
 * @typedef {import("../cas/index.ts").Change} Change
 *
 * @typedef {object} PackedChanges
 * @property {Uint8Array} bytes All changes. The versions of their rows are left to the thread.
 * @property {Float64Array} expected The version that each of them expects; 0: there must be no record.
 */

/** What stands before a key: how long that is, … */
const KEY_BYTES_AT = 0;
/** … and how long the row is. */
const ROW_BYTES_AT = 4;
const LENGTHS_BYTES = 8;

const BLANK_LENGTHS = " ".repeat(LENGTHS_BYTES);
const BLANK_HEAD = " ".repeat(HEAD_BYTES);
const encoder = new TextEncoder();

/**
 * @param {readonly Change[]} changes
 * @returns {PackedChanges}
 */
export function packChanges(changes) {
  const expected = new Float64Array(changes.length);
  let place = 0;
  let all = "";
  for (const { key, expected: version, text } of changes) {
    expected[place++] = version === undefined ? 0 : Number(version);
    all += text === undefined ? BLANK_LENGTHS + key : BLANK_LENGTHS + key + BLANK_HEAD + text;
  }
  const bytes = new Uint8Array(all.length);
  // Where it fits, each character is one byte.
  if (encoder.encodeInto(all, bytes).read === all.length) {
    writeHeads(bytes, changes, charactersOf);
    return { bytes, expected };
  }
  const longer = encoder.encode(all);
  writeHeads(longer, changes, Buffer.byteLength);
  return { bytes: longer, expected };
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
  let at = 0;
  for (const { key, text, keepUntilMs, idle } of changes) {
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

/**
 * @param {PackedChanges} packed
 */
export function countChanges({ expected }) {
  return expected.length;
}

/** Goes through changes one by one. */
export class ChangeReader {
  /** @type {Buffer} */
  #bytes;
  /** @type {DataView} */
  #view;
  #keyAt = 0;
  #rowAt = 0;
  /** @type {string | undefined} */
  #name;
  /** Where the change begins, … */
  at = 0;
  /** … and where the next one does. */
  end = 0;

  /**
   * @param {Uint8Array} bytes
   * @param {number} from Where the first one begins.
   */
  constructor(bytes, from = 0) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.end = from;
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
    this.#rowAt = this.#keyAt + this.#view.getUint32(at + KEY_BYTES_AT, true);
    this.end = this.#rowAt + this.#view.getUint32(at + ROW_BYTES_AT, true);
  }

  get key() {
    return this.#bytes.subarray(this.#keyAt, this.#rowAt);
  }

  /** The key as a text that no other key has: its bytes as characters. */
  get name() {
    this.#name ??= this.#bytes.toString("latin1", this.#keyAt, this.#rowAt);
    return this.#name;
  }

  /** Without bytes where there is none. */
  get row() {
    return this.#bytes.subarray(this.#rowAt, this.end);
  }

  get hasRow() {
    return this.#rowAt < this.end;
  }

  /**
   * The row, which gets this version.
   *
   * @param {number} version
   */
  versioned(version) {
    writeVersion(this.#view, this.#rowAt, version);
    return this.row;
  }

  /**
   * All changes from one place up to another.
   *
   * @param {number} from
   * @param {number} to
   */
  between(from, to) {
    return this.#bytes.subarray(from, to);
  }
}
