/** Opens the files of a folder, or makes them. */
import { join } from "node:path";
import { thisMachine } from "./disk-clock.js";
import { codedError } from "./failures.js";
import { STALE_BASE } from "./file-heads.js";
import { Folder } from "./folder.js";
import { checkFile, removeUnbegun } from "./folder-checks.js";
import { LIVE_NAME, removeUnreadable, removeUnused } from "./live-file.js";
import { LmdbFile } from "./lmdb-file.js";
import { LOG_BYTES, Log } from "./log.js";

/** @typedef {Partial<import("./folder.js").FolderOptions> & { undisturbed?: <T>(work: () => T) => T }} OpenOptions What has transactions in it is done by the last one. */

/**
 * @param {typeof import("lmdb")} lmdb
 * @param {string} folder
 * @param {OpenOptions} options
 * @returns {Promise<Folder>}
 */
export async function openFolder(lmdb, folder, options = {}) {
  const { machine = thisMachine(), logBytes = LOG_BYTES, undisturbed = (work) => work(), ...more } = options;
  /** @type {(LmdbFile | Log)[]} */
  const opened = [];
  const openFile = (/** @type {string} */ name, /** @type {boolean} */ isDurable) => {
    const path = join(folder, name);
    checkFile(folder, path);
    const file = LmdbFile.open(lmdb, path, { isDurable });
    opened.unshift(file);
    return file;
  };
  try {
    removeUnbegun(folder);
    // Whoever may not use it is told so before anything is removed.
    checkFile(folder, join(folder, "locks.mdb"));
    removeUnreadable(join(folder, LIVE_NAME));
    undisturbed(() => removeUnused(openFile(LIVE_NAME, false), join(folder, LIVE_NAME)));
    await opened.shift()?.close();
    return undisturbed(() => {
      const baseFile = openFile("locks.mdb", true);
      baseFile.prepare();
      const live = openFile(LIVE_NAME, false);
      live.transact(() => {
        if (!live.isBlank && !live.isInUse) throw codedError(STALE_BASE, "others have left it meanwhile");
        live.makeRoom(0);
      });
      const log = new Log(folder);
      opened.unshift(log);
      const files = new Folder(live, baseFile, log, { machine, logBytes, ...more });
      files.begin();
      return files;
    });
  } catch (error) {
    for (const each of opened) await each.close();
    throw error;
  }
}
