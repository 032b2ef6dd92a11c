/**
 * What a folder knows of itself: its format, its time, its latest version, and where its log is. It is kept in `locks.mdb` under one key, as JSON.
 * What of it changes with every transaction is in the file of the present run (live-state.js), and the time in the log.
 */
import { codedError } from "./failures.js";

/**
 * @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root
 * @typedef {import("./disk-clock.js").KeptTime} KeptTime
 *
 * In `locks.mdb`: the generation of the first log that is not in it, and the sum of the last entry that is.
 * @typedef {{ format: number, versions: number, generation: number, sum: number } & KeptTime} State
 */

export const FORMAT = 3;
export const STATE_KEY = Buffer.from("holdfast");
/** Three numbers. Behind them is the name of the run of the machine. */
const TIME_BYTES = 24;
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
  const text = root.get(STATE_KEY)?.toString();
  if (text === undefined) throw codedError("FOREIGN", "it has no entry of Holdfast");
  const state = parse(text);
  const { format, versions, generation, sum, boot, offsetMs, lastMs, lastMonotonicMs } = state;
  checkFormat(format);
  const numbers = [versions, generation, sum, offsetMs, lastMs, lastMonotonicMs];
  if (typeof boot !== "string" || !numbers.every(Number.isFinite)) throw unreadable();
  return /** @type {State} */ (state);
}

/**
 * @param {Root} root
 * @param {State} state
 */
export function writeState(root, state) {
  root.putSync(STATE_KEY, Buffer.from(JSON.stringify(state)));
}

/**
 * The folder's time, as an entry of the log has it.
 *
 * @param {KeptTime} time
 */
export function timeBytes({ boot, offsetMs, lastMs, lastMonotonicMs }) {
  const bytes = Buffer.allocUnsafe(TIME_BYTES + boot.length);
  bytes.writeDoubleLE(offsetMs, 0);
  bytes.writeDoubleLE(lastMs, 8);
  bytes.writeDoubleLE(lastMonotonicMs, 16);
  bytes.write(boot, TIME_BYTES, "latin1");
  return bytes;
}

/**
 * @param {Buffer} bytes
 * @returns {KeptTime}
 */
export function timeFrom(bytes) {
  return {
    boot: bytes.toString("latin1", TIME_BYTES),
    offsetMs: bytes.readDoubleLE(0),
    lastMs: bytes.readDoubleLE(8),
    lastMonotonicMs: bytes.readDoubleLE(16),
  };
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

/**
 * Throws unless it is the present one.
 *
 * @param {unknown} format
 */
export function checkFormat(format) {
  if (format === FORMAT) return;
  if (!Number.isInteger(format)) throw unreadable();
  throw codedError(Number(format) > FORMAT ? "NEWER_FORMAT" : "OLDER_FORMAT", `format ${format}`);
}

export function unreadable() {
  return codedError("FOREIGN", "its entry of Holdfast cannot be read");
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
