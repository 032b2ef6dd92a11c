/** What a folder knows of itself: its format, its time, its latest version, and where its log is. It is kept under one key, as JSON. */
import { codedError } from "./failures.js";
import { STALE_BASE } from "./file-heads.js";

/**
 * @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root
 * @typedef {import("./disk-clock.js").KeptTime} KeptTime
 *
 * In `locks.mdb`: the generation of the first log that is not in it, and the sum of the last entry that is.
 * @typedef {{ format: number, versions: number, generation: number, sum: number } & KeptTime} State
 *
 * In the file of the present run, also: where the next entry of the log begins, and the folder's time at the last one; the generation before which all
 * is in `locks.mdb`; and where the log before ended, with which sum.
 * @typedef {{ end: number, loggedMs: number, foldedTo: number, formerEnd: number, formerSum: number }} LogPlace
 * @typedef {State & LogPlace} LiveState
 */

export const FORMAT = 2;
export const STATE_KEY = Buffer.from("holdfast");
const LARGEST_SUM = 0xff_ff_ff_ff;

/**
 * Whether nothing was ever written to the file.
 *
 * @param {Root} root
 */
export function isNew(root) {
  return root.get(STATE_KEY) === undefined && [...root.getKeys({ limit: 1 })].length === 0;
}

/**
 * What `locks.mdb` knows.
 *
 * @param {Root} root
 * @returns {State}
 */
export function readState(root) {
  return readAny(root);
}

/**
 * What the file of the present run knows.
 *
 * @param {Root} root
 * @returns {LiveState}
 */
export function readLiveState(root) {
  // Another process is making it anew.
  if (root.get(STATE_KEY) === undefined) throw codedError(STALE_BASE, "it is empty");
  const state = readAny(root);
  const { end, loggedMs, foldedTo, formerEnd, formerSum } = state;
  if (!areNumbers(end, loggedMs, foldedTo, formerEnd, formerSum)) throw unreadable();
  return state;
}

/**
 * @param {Root} root
 * @returns {any}
 */
function readAny(root) {
  const text = root.get(STATE_KEY)?.toString();
  if (text === undefined) throw codedError("FOREIGN", "it has no entry of Holdfast");
  const state = parse(text);
  const { format, versions, generation, sum, boot, offsetMs, lastMs, lastMonotonicMs } = state;
  if (Number.isInteger(format) && format > FORMAT) throw codedError("NEWER_FORMAT", `format ${format}`);
  if (Number.isInteger(format) && format < FORMAT) throw codedError("OLDER_FORMAT", `format ${format}`);
  const numbers = [versions, generation, sum, offsetMs, lastMs, lastMonotonicMs];
  if (format !== FORMAT || typeof boot !== "string" || !areNumbers(...numbers)) throw unreadable();
  return state;
}

/** Where a log begins of which there was none. What is in its file from other times has no such sum before it. */
export function firstLog() {
  return { generation: 1, sum: Math.floor(Math.random() * LARGEST_SUM) };
}

/**
 * What versions go on from in a run that begins with what the disk has. A process of an earlier run may live on and know versions that the disk
 * has not, or that were in a folder which somebody has removed, and swaps by what it knows: the same numbers must not come again. So they begin
 * anywhere. That one which somebody still knows is met is as likely as to draw one card out of 2^52, times the changes of the run.
 */
export function firstVersion() {
  return Math.floor(Math.random() * 2 ** 52);
}

/** @param {readonly unknown[]} values */
function areNumbers(...values) {
  return values.every(Number.isFinite);
}

function unreadable() {
  return codedError("FOREIGN", "its entry of Holdfast cannot be read");
}

/**
 * @param {Root} root
 * @param {State | LiveState} state
 */
export function writeState(root, state) {
  root.putSync(STATE_KEY, bytesOf(state));
}

/** @param {State | LiveState} state */
export function bytesOf(state) {
  return Buffer.from(JSON.stringify(state));
}

/**
 * @param {string} text
 * @returns {Record<string, any>}
 */
export function parse(text) {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

/**
 * Whether a record names a claim whose time is not up. One that cannot be read may.
 *
 * @param {string} text
 * @param {number} nowMs
 */
export function hasClaimsAt(text, nowMs) {
  const { held, waiting } = parse(text);
  if (!Array.isArray(held) || !Array.isArray(waiting)) return true;
  return [...held, ...waiting].some(({ expiresAtMs }) => !(expiresAtMs <= nowMs));
}

/**
 * What no two changes of the folder have in common, also if one of them has failed.
 *
 * @param {LiveState} state
 */
export function momentOf({ generation, end, sum }) {
  return `${generation} ${end} ${sum}`;
}
