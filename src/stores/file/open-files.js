/**
 * Which files this process has open, for two reasons that are in the source of LMDB:
 *
 * - The first process that opens a file sets up its lock. If that process is killed meanwhile, a second one that waits goes on with
 *   half a lock. So processes open the files of a folder one after the other.
 * - A process that opens a file twice, and closes it once, loses the system's locks of that file. The next process would then set up
 *   the lock again, and two could write at the same time. So a process opens a file once.
 */
import { fstatSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";

/** Linux lists here what a process has open, of all its threads and all its copies of LMDB. Elsewhere nothing is known. */
const DESCRIPTORS = "/proc/self/fd";

/**
 * Whether this process has one of the lock files of a folder open. LMDB closes them last.
 *
 * @param {string} folder
 */
export function isOpenHere(folder) {
  const files = new Set(
    namesIn(folder)
      .filter((name) => name.endsWith("-lock"))
      .map((name) => fileOf(() => statSync(join(folder, name)))),
  );
  files.delete(undefined);
  return (
    files.size > 0 && namesIn(DESCRIPTORS).some((name) => files.has(fileOf(() => fstatSync(Number(name)))))
  );
}

/**
 * @param {() => import("node:fs").Stats} look
 * @returns {string | undefined} The same for the same file, whatever its name.
 */
function fileOf(look) {
  try {
    const { dev, ino } = look();
    return `${dev}-${ino}`;
  } catch {
    // It is closed or removed by now.
    return undefined;
  }
}

/**
 * @param {string} folder
 * @returns {readonly string[]}
 */
function namesIn(folder) {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
