/** What the file of the present run knows of its folder. It is read and written with every transaction, so it stands there as numbers. */
import { codedError } from "./failures.js";
import { STALE_BASE } from "./file-heads.js";
import { checkFormat, FORMAT, STATE_KEY, unreadable } from "./folder-state.js";

/**
 * @typedef {import("./folder-state.js").Root} Root
 * @typedef {import("./folder-state.js").State} State
 *
 * Where the next entry of the log begins, and the folder's time at the last one; the generation before which all is in `locks.mdb`; and where the
 * log before ended, with which sum.
 * @typedef {{ end: number, loggedMs: number, foldedTo: number, formerEnd: number, formerSum: number }} LogPlace
 *
 * Up to where the tables have what the log has, and the sum of the entry before that place.
 * @typedef {{ settledEnd: number, settledSum: number }} Settled
 * @typedef {State & LogPlace & Settled} LiveState
 */

const NUMBERS = 14;
const NUMBER_BYTES = NUMBERS * Float64Array.BYTES_PER_ELEMENT;
/** What names a run of the machine is no longer than this. */
const BOOT_BYTES = 64;

/** What was read or is written: the numbers, and behind them the name of the machine's run. */
const bytes = Buffer.from(new ArrayBuffer(NUMBER_BYTES + BOOT_BYTES));
const numbers = new Float64Array(bytes.buffer, 0, NUMBERS);

/**
 * @param {Root} root
 * @returns {LiveState}
 */
export function readLiveState(root) {
  const found = root.get(STATE_KEY);
  // Another process is making it anew.
  if (found === undefined) throw codedError(STALE_BASE, "it is empty");
  const { length } = found;
  if (length < NUMBER_BYTES || length > bytes.length) throw unreadable();
  bytes.set(found);
  checkFormat(numbers[0]);
  if (!numbers.every(Number.isFinite)) throw unreadable();
  const at = (/** @type {number} */ place) => /** @type {number} */ (numbers[place]);
  return {
    format: FORMAT,
    versions: at(1),
    generation: at(2),
    sum: at(3),
    offsetMs: at(4),
    lastMs: at(5),
    lastMonotonicMs: at(6),
    end: at(7),
    loggedMs: at(8),
    foldedTo: at(9),
    formerEnd: at(10),
    formerSum: at(11),
    settledEnd: at(12),
    settledSum: at(13),
    boot: bytes.toString("latin1", NUMBER_BYTES, length),
  };
}

/**
 * @param {Root} root
 * @param {LiveState} state
 */
export function writeLiveState(root, state) {
  numbers[0] = FORMAT;
  numbers[1] = state.versions;
  numbers[2] = state.generation;
  numbers[3] = state.sum;
  numbers[4] = state.offsetMs;
  numbers[5] = state.lastMs;
  numbers[6] = state.lastMonotonicMs;
  numbers[7] = state.end;
  numbers[8] = state.loggedMs;
  numbers[9] = state.foldedTo;
  numbers[10] = state.formerEnd;
  numbers[11] = state.formerSum;
  numbers[12] = state.settledEnd;
  numbers[13] = state.settledSum;
  const end = NUMBER_BYTES + bytes.write(state.boot, NUMBER_BYTES, "latin1");
  root.putSync(STATE_KEY, bytes.subarray(0, end));
}

/**
 * Whether the log is the same. No two changes of the folder have that in common, but one that has failed may have it in common with the next one.
 *
 * @param {{ readonly generation: number, readonly end: number }} a
 * @param {{ readonly generation: number, readonly end: number }} b
 */
export function isSameMoment(a, b) {
  return a.generation === b.generation && a.end === b.end;
}

/**
 * By what somebody who has seen all of it finds that nobody else has changed anything since, neither in the log nor in the tables. With the sum, that does
 * not hang on `lmdb` telling of each commit that fails.
 *
 * @param {LiveState} seen
 * @param {LiveState} state
 */
export function isAsSeen(seen, state) {
  return isSameMoment(seen, state) && seen.sum === state.sum && seen.settledEnd === state.settledEnd;
}
