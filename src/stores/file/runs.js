/**
 * The file of the present run of the machine. Its name has that of the run: after a loss of power nothing in it can be relied upon.
 */
import { closeSync, fsyncSync, openSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { readBoot, readMonotonicMs } from "./disk-clock.js";

/** @typedef {import("./disk-clock.js").MachineTime} MachineTime */

/** @returns {MachineTime} */
export function thisMachine() {
  return { boot: readBoot(), monotonicMs: readMonotonicMs(), wallMs: Date.now() };
}

const LIVE_NAME = /^live(-[^.]*)?\.mdb(-lock)?$/;

/** @param {MachineTime} machine */
export function liveName({ boot }) {
  return boot === "" ? "live.mdb" : `live-${boot}.mdb`;
}

/**
 * Removes the files of former runs, for good: a folder that comes back to a machine which was not restarted meanwhile must not meet
 * what it was there before.
 *
 * @param {string} folder
 * @param {MachineTime} machine
 */
export function removeFormerRuns(folder, machine) {
  const present = liveName(machine);
  const former = readdirSync(folder).filter((name) => LIVE_NAME.test(name) && !name.startsWith(present));
  for (const name of former) rmSync(join(folder, name), { force: true });
  if (former.length > 0) syncFolder(folder);
}

/** @param {string} folder */
export function syncFolder(folder) {
  try {
    const descriptor = openSync(folder, "r");
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch {
    // Not every system lets a folder be opened, and the one above may be somebody else's.
  }
}
