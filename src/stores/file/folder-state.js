/** What a folder knows of itself: its format, its time, its latest version. It is kept under one key, as JSON. */
import { firstTime, resumedTime } from "./disk-clock.js";
import { codedError } from "./failures.js";

/**
 * @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root
 * @typedef {import("./disk-clock.js").KeptTime} KeptTime
 * @typedef {{ format: number, versions: number } & KeptTime} State
 */

const FORMAT = 1;
const STATE_KEY = Buffer.from("holdfast");

/**
 * The state of a folder, which is made where there is none.
 *
 * @param {Root} root
 * @param {import("./disk-clock.js").MachineTime} machine
 * @returns {{ state: State, isResumed: boolean }}
 */
export function arrive(root, machine) {
  const isNew = root.get(STATE_KEY) === undefined && [...root.getKeys({ limit: 1 })].length === 0;
  const before = isNew ? undefined : readState(root);
  const time = before === undefined ? firstTime(machine) : resumedTime(before, machine);
  if (before !== undefined && time === before) return { state: before, isResumed: false };
  const state = { format: FORMAT, versions: before?.versions ?? 0, ...time };
  writeState(root, state);
  return { state, isResumed: before !== undefined };
}

/**
 * @param {Root} root
 * @returns {State}
 */
export function readState(root) {
  const text = root.get(STATE_KEY)?.toString();
  if (text === undefined) throw codedError("FOREIGN", "it has no entry of Holdfast");
  const { format, versions, boot, offsetMs, lastMs, lastMonotonicMs } = parse(text);
  if (Number.isInteger(format) && format > FORMAT) throw codedError("NEWER_FORMAT", `format ${format}`);
  const numbers = [versions, offsetMs, lastMs, lastMonotonicMs];
  if (format !== FORMAT || typeof boot !== "string" || !numbers.every(Number.isFinite)) {
    throw codedError("FOREIGN", "its entry of Holdfast cannot be read");
  }
  return { format, versions, boot, offsetMs, lastMs, lastMonotonicMs };
}

/**
 * @param {Root} root
 * @param {State} state
 */
export function writeState(root, state) {
  const { format, versions, boot, offsetMs, lastMs, lastMonotonicMs } = state;
  root.putSync(
    STATE_KEY,
    Buffer.from(JSON.stringify({ format, versions, boot, offsetMs, lastMs, lastMonotonicMs })),
  );
}

/**
 * @param {string} text
 * @returns {Record<string, any>}
 */
function parse(text) {
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
 * What no two changes of the folder have in common.
 *
 * @param {State} state
 */
export function momentOf({ versions, boot, lastMonotonicMs }) {
  return `${versions} ${lastMonotonicMs} ${boot}`;
}
