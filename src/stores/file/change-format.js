/**
 * How changes cross to the thread: all bytes in one piece, and all numbers in another. A list for each field would be taken
 * apart and put together again item by item, on either side, and its texts once more on their way into the database.
 */
import { HEAD_BYTES, writeHead } from "./row-format.js";

/**
 * @typedef {import("../cas/index.ts").Change} Change
 *
 * @typedef {object} PackedChanges
 * @property {Uint8Array} bytes The key of each change, and behind it the row, if one is to be written. Its head is left to the thread.
 * @property {Float64Array} numbers Some for each change.
 */

/** What the numbers of a change are: the version that is expected, 0 for none, … */
const EXPECTED = 0;
/** … until when the record is kept, … */
const KEEP_UNTIL_MS = 1;
/** … whether it has no claims, … */
const IDLE = 2;
/** … how long its key is, and how long its row, 0 where nothing is to be written. */
const KEY_BYTES = 3;
const ROW_BYTES = 4;
const NUMBERS = 5;

const BLANK_HEAD = " ".repeat(HEAD_BYTES);
const encoder = new TextEncoder();

/**
 * @param {readonly Change[]} changes
 * @returns {PackedChanges}
 */
export function packChanges(changes) {
  const numbers = new Float64Array(changes.length * NUMBERS);
  let all = "";
  let base = 0;
  for (const { key, expected, text, idle, keepUntilMs } of changes) {
    numbers[base + EXPECTED] = expected === undefined ? 0 : Number(expected);
    numbers[base + KEEP_UNTIL_MS] = keepUntilMs;
    numbers[base + IDLE] = idle ? 1 : 0;
    numbers[base + KEY_BYTES] = key.length;
    numbers[base + ROW_BYTES] = text === undefined ? 0 : HEAD_BYTES + text.length;
    all += text === undefined ? key : key + BLANK_HEAD + text;
    base += NUMBERS;
  }
  const bytes = new Uint8Array(all.length);
  // Where it fits, each character is one byte.
  if (encoder.encodeInto(all, bytes).read === all.length) return { bytes, numbers };
  return { bytes: encodeEach(changes, numbers), numbers };
}

/**
 * The same where characters take several bytes.
 *
 * @param {readonly Change[]} changes
 * @param {Float64Array} numbers
 */
function encodeEach(changes, numbers) {
  const pieces = [];
  let base = 0;
  for (const { key, text } of changes) {
    const keyBytes = encoder.encode(key);
    const rowBytes = encoder.encode(text === undefined ? "" : BLANK_HEAD + text);
    numbers[base + KEY_BYTES] = keyBytes.length;
    numbers[base + ROW_BYTES] = rowBytes.length;
    pieces.push(keyBytes, rowBytes);
    base += NUMBERS;
  }
  return new Uint8Array(Buffer.concat(pieces));
}

/**
 * How many changes there are.
 *
 * @param {PackedChanges} packed
 */
export function countChanges({ numbers }) {
  return numbers.length / NUMBERS;
}

/** Goes through changes one by one. */
export class ChangeReader {
  /** @type {Buffer} */
  #bytes;
  /** @type {DataView} */
  #view;
  /** @type {Float64Array} */
  #numbers;
  #base = -NUMBERS;
  /** Where the key of the change begins. */
  #at = 0;
  /** Where the next one begins. */
  #end = 0;

  /**
   * @param {PackedChanges} packed
   * @param {number} from The first change to be looked at.
   */
  constructor({ bytes, numbers }, from) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#numbers = numbers;
    for (let place = 0; place < from; place++) this.next();
  }

  /** Goes on to the next change. */
  next() {
    this.#base += NUMBERS;
    this.#at = this.#end;
    this.#end += this.#number(KEY_BYTES) + this.#number(ROW_BYTES);
  }

  get key() {
    return this.#bytes.subarray(this.#at, this.#at + this.#number(KEY_BYTES));
  }

  get expected() {
    return this.#number(EXPECTED);
  }

  get keepUntilMs() {
    return this.#number(KEEP_UNTIL_MS);
  }

  /** Whether there is something to write. */
  get writes() {
    return this.#number(ROW_BYTES) > 0;
  }

  /**
   * The row to be written, which gets this version.
   *
   * @param {number} version
   */
  row(version) {
    const at = this.#at + this.#number(KEY_BYTES);
    writeHead(this.#view, at, version, this.keepUntilMs, this.#number(IDLE) === 1);
    return this.#bytes.subarray(at, this.#end);
  }

  /** The key and the row behind it. */
  get keyAndRow() {
    return this.#bytes.subarray(this.#at, this.#end);
  }

  /** @param {number} field */
  #number(field) {
    return /** @type {number} */ (this.#numbers[this.#base + field]);
  }
}
