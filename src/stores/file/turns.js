/**
 * Names that one thread of the machine can have at a time, and that are free again as soon as its process is gone, however that
 * ended. Linux keeps them: they are addresses of sockets that are in no folder. Elsewhere there are none, and everybody gets what
 * they ask for.
 *
 * Two things need that, because of how LMDB finds out who uses a file, as its source has it:
 *
 * - A process that opens a file which nobody else has open sets up the lock of the file anew. If it is killed in the middle of that
 *   while another one waits to open the file, that one goes on with half a lock. So processes open a file one after the other.
 * - If a process opens a file twice, the system forgets that it has it open at all. The next process would set up the
 *   lock anew, and two could write at the same time. So a process opens a file once.
 */
import { readFileSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

/** How long to wait between two attempts, in milliseconds. */
const PAUSE_MS = 5;

/**
 * Takes a name, waiting for it for a while.
 *
 * @param {string} name
 * @param {number} withinMs
 * @returns {Promise<(() => void) | undefined>} What gives it back; undefined where somebody else has kept it.
 */
export async function takeName(name, withinMs) {
  if (process.platform !== "linux") return () => {};
  const endMs = performance.now() + withinMs;
  for (;;) {
    const giveBack = await tryName(name);
    if (giveBack !== undefined || performance.now() > endMs) return giveBack;
    await sleep(PAUSE_MS);
  }
}

/**
 * @param {string} name
 * @returns {Promise<(() => void) | undefined>}
 */
function tryName(name) {
  return new Promise((resolve, reject) => {
    const server = createServer((socket) => socket.destroy());
    server.once("error", (/** @type {NodeJS.ErrnoException} */ error) => {
      if (error.code === "EADDRINUSE") resolve(undefined);
      else reject(error);
    });
    server.listen(`\0holdfast-${name}`, () => resolve(() => void server.close()));
    server.unref();
  });
}

/**
 * Names a folder, by whatever path it is known.
 *
 * @param {string} folder
 */
export function nameOfFolder(folder) {
  const { dev, ino } = statSync(folder);
  return `${dev}-${ino}`;
}

/** Names this process, also among those of other containers that have the same number there. */
export function nameOfProcess() {
  return `${process.pid}-${startOf(readOptional("/proc/self/stat"))}`;
}

/**
 * When a process was started, as the kernel counts: the 22nd word of its line. The second is its name, which may contain anything.
 *
 * @param {string} line
 */
function startOf(line) {
  return line.slice(line.lastIndexOf(")") + 2).split(" ")[19] ?? "";
}

/** @param {string} path */
function readOptional(path) {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
