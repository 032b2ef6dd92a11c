/**
 * The clock of a folder: the same for all processes of this machine, and set by nobody.
 *
 * It is the kernel's monotonic clock, which all processes share, plus an offset that is kept in the folder. The wall
 * clock is looked at only when the folder is made, and after a restart of the machine where nobody has a claim.
 * docs/decisions/0011-file-store.md says why, and what follows.
 */
import { readFileSync } from "node:fs";

/**
 * What the folder knows of time.
 *
 * @typedef {object} KeptTime
 * @property {string} boot Names the run of the kernel in which the offset counts; empty where the system does not say.
 * @property {number} offsetMs What to add to the monotonic clock.
 * @property {number} lastMs The folder's time at its latest change.
 * @property {number} lastMonotonicMs The monotonic clock at that moment.
 */

/**
 * What this machine says.
 *
 * @typedef {object} MachineTime
 * @property {string} boot
 * @property {number} monotonicMs
 * @property {number} wallMs
 */

/**
 * The time of a folder that is used for the first time.
 *
 * @param {MachineTime} machine
 * @returns {KeptTime}
 */
export function firstTime({ boot, monotonicMs, wallMs }) {
  return { boot, offsetMs: wallMs - monotonicMs, lastMs: wallMs, lastMonotonicMs: monotonicMs };
}

/**
 * Goes on with the time of a folder. In the same run of the kernel nothing changes. In another one, time goes on from the
 * folder's latest change, as if the machine had been off for no longer than it has been on: that is the only part of the pause that can be known
 * without trusting the wall clock, and no claim ends before its time. Where the system does not name its runs, a monotonic clock that is behind says that it
 * was restarted; one that is not says at least that as much time has passed as it shows.
 *
 * @param {KeptTime} kept
 * @param {MachineTime} machine
 * @returns {KeptTime} The same object where nothing changes.
 */
export function resumedTime(kept, { boot, monotonicMs }) {
  const isSameRun = boot === kept.boot && (boot !== "" || monotonicMs >= kept.lastMonotonicMs);
  if (isSameRun) return kept;
  return { boot, offsetMs: kept.lastMs, lastMs: kept.lastMs + monotonicMs, lastMonotonicMs: monotonicMs };
}

/**
 * Brings the time up to the wall clock, if that is ahead. Only where nobody has a claim that could end by it.
 *
 * @param {KeptTime} kept
 * @param {MachineTime} machine
 * @returns {KeptTime}
 */
export function alignedTime(kept, machine) {
  return machine.wallMs > kept.offsetMs + machine.monotonicMs ? firstTime(machine) : kept;
}

/**
 * The present time of a folder. It does not go back.
 *
 * @param {KeptTime} kept
 * @param {number} monotonicMs
 */
export function timeOf(kept, monotonicMs) {
  return Math.max(kept.lastMs, kept.offsetMs + monotonicMs);
}

/** The monotonic clock of the machine, also in a container whose clock was given an offset. */
export function readMonotonicMs() {
  return Number(process.hrtime.bigint()) / 1e6 - namespaceOffsetMs;
}

const namespaceOffsetMs = namespaceOffset(readOptional("/proc/self/timens_offsets"));

/**
 * By how much the monotonic clock of this process is ahead of the machine's, in milliseconds.
 *
 * @param {string} text `/proc/self/timens_offsets`
 */
export function namespaceOffset(text) {
  const [, seconds = "0", nanoseconds = "0"] = /^monotonic\s+(-?\d+)\s+(-?\d+)/m.exec(text) ?? [];
  return Number(seconds) * 1e3 + Number(nanoseconds) / 1e6;
}

/** @returns {MachineTime} */
export function thisMachine() {
  return { boot: readBoot(), monotonicMs: readMonotonicMs(), wallMs: Date.now() };
}

/** Names the present run of the kernel. Empty where the system does not say. */
export function readBoot() {
  return readOptional("/proc/sys/kernel/random/boot_id").trim();
}

/**
 * @param {string} path
 * @returns {string}
 */
function readOptional(path) {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    // Other failures say nothing about the system.
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return "";
    throw error;
  }
}
