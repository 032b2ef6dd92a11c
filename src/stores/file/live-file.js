/** The file that says what is true now. It is on no disk for certain, so it counts only as long as somebody has it open. */
import { existsSync, rmSync } from "node:fs";
import { failureOf } from "./failures.js";
import { checkHead, INVALID } from "./folder-checks.js";

/** @typedef {import("./lmdb-file.js").LmdbFile} LmdbFile */

export const LIVE_NAME = "live.mdb";

/**
 * Removes the file that says what is true now if nobody has it open. What was true is found in the log then. All of it may be wrong, so only its
 * beginning is read.
 *
 * @param {LmdbFile} live
 * @param {string} path
 */
export function removeUnused(live, path) {
  // Whoever has it without having said so meets it removed, and comes again.
  live.transact(() => {
    if (!live.isBlank && !live.isInUse) rmSync(path);
  });
}

/**
 * What has no beginning of LMDB is nobody's.
 *
 * @param {string} path
 */
export function removeUnreadable(path) {
  try {
    if (existsSync(path)) checkHead(path);
  } catch (error) {
    if (failureOf(error).code !== INVALID) throw error;
    rmSync(path, { force: true });
  }
}
