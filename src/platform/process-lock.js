/**
 * A lock between all processes of a machine. It belongs to a path, needs the rights to the folder that the path is in, and comes free
 * when its process dies, however that ends.
 *
 * Node offers no lock of a file. So the lock is a folder that holds one Unix socket of its holder:
 *
 * - A candidate makes a folder of its own, listens at a socket in it, and renames the folder to the path of the lock. The system
 *   renames a folder over a missing or an empty one only. So of two candidates one succeeds, and the socket was there first.
 * - A socket that refuses connections has no process, and never has one again, because its name is used once. Anybody may
 *   remove that name, which empties the folder. A removal that comes late finds nothing: the next holder's socket has another name.
 * - A holder that is busy or stopped still accepts connections, so its lock is not taken from it.
 *
 * On Windows, and for long paths on systems without /proc, there is no such lock, and every caller gets it.
 */
import { randomUUID } from "node:crypto";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmdirSync,
  statSync,
  unlinkSync,
} from "node:fs";
import { connect, createServer } from "node:net";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** @typedef {NodeJS.ErrnoException} SystemError */

/** The longest address of a Unix socket that all systems take, without the zero at its end. */
const MAX_ADDRESS_BYTES = 103;
/** By this path Linux names a folder that the process has open. */
const OPEN_FOLDERS = "/proc/self/fd";
/** Further processes that wait for the lock look every few milliseconds. */
const MAX_CONNECTIONS = 100;
/** Between two attempts, in milliseconds. */
const PAUSE_MS = 5;
/** A candidate's folder that is older was left by a process that died. */
const ORPHAN_MS = 60_000;

/**
 * Takes the lock, and waits for it at most that long.
 *
 * @param {string} path Where the folder of the lock is made.
 * @param {number} withinMs 0 does not wait.
 * @returns {Promise<(() => void) | undefined>} Gives it back; undefined if another holder has kept it.
 */
export async function takeLock(path, withinMs) {
  const id = randomUUID().slice(0, 18);
  const own = `${path}.${id}`;
  if (process.platform === "win32" || !hasAddress(join(own, id))) return () => {};
  const endMs = performance.now() + withinMs;
  let close = () => {};
  mkdirSync(own);
  try {
    close = await listen(own, id);
    while (!isRenamed(own, path)) {
      const remainingMs = endMs - performance.now();
      if (!(await comesFree(path, remainingMs)) && remainingMs <= 0) {
        drop(own, id, close);
        return undefined;
      }
    }
    // Another process may have removed the socket as an orphan's before the folder was renamed. Then the lock is not held.
    if (!existsSync(join(path, id))) throw coded("EAGAIN", "the socket is gone");
  } catch (error) {
    drop(own, id, close);
    throw error;
  }
  removeOrphans(path);
  return () => drop(path, id, close);
}

/**
 * @param {string} folder
 * @param {string} name
 * @returns {Promise<() => void>} Ends it, and the connections of those that wait.
 */
function listen(folder, name) {
  return withAddress(folder, name, async (address) => {
    /** @type {Set<import("node:net").Socket>} */
    const waiting = new Set();
    const server = createServer((socket) => {
      // The others wait for its end.
      waiting.add(socket.unref());
      socket.on("error", () => {}).on("close", () => waiting.delete(socket));
    });
    server.maxConnections = MAX_CONNECTIONS;
    await new Promise((resolve, reject) => {
      server.once("error", (/** @type {SystemError} */ error) => reject(bindError(error)));
      // The primary process of a cluster would listen in place of its worker, and outlive it.
      server.listen({ path: address, exclusive: true }, () => resolve(undefined));
    });
    server.on("error", () => {}).unref();
    return () => {
      server.close();
      for (const socket of waiting) socket.destroy();
    };
  });
}

/**
 * The folder could be made, so the rights are there.
 *
 * @param {SystemError} error
 */
function bindError(error) {
  return error.code === "EPERM" ? coded("ENOTSUP", "the file system has no sockets") : error;
}

/**
 * Whether the folder has become that of the lock.
 *
 * @param {string} own
 * @param {string} path
 */
function isRenamed(own, path) {
  try {
    renameSync(own, path);
    return true;
  } catch (error) {
    const { code } = /** @type {SystemError} */ (error);
    if (code === "ENOTEMPTY" || code === "EEXIST") return false;
    throw error;
  }
}

/**
 * Removes the socket of a holder that is dead, and waits for one that is not.
 *
 * @param {string} path
 * @param {number} withinMs
 * @returns {Promise<boolean>} Whether to try again at once.
 */
async function comesFree(path, withinMs) {
  let isFree = true;
  for (const name of namesIn(path)) {
    const state = await withAddress(path, name, (address) => stateOf(address, withinMs));
    if (state === "dead") unlinkIfThere(join(path, name));
    if (state === "held") isFree = false;
  }
  if (!isFree) await sleep(Math.min(PAUSE_MS, Math.max(0, withinMs)));
  return isFree;
}

/**
 * @param {string} address
 * @param {number} withinMs How long to wait for the end of a holder.
 * @returns {Promise<"dead" | "gone" | "held">}
 */
function stateOf(address, withinMs) {
  return new Promise((resolve, reject) => {
    const socket = connect(address);
    /** @type {NodeJS.Timeout | undefined} */
    let timer;
    const settle = (/** @type {"dead" | "gone" | "held"} */ state) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(state);
    };
    socket.once("connect", () => {
      if (withinMs <= 0) settle("held");
      else timer = setTimeout(() => settle("held"), withinMs);
    });
    socket.once("error", (/** @type {SystemError} */ error) => {
      // Without the right to connect, nothing is known about the holder.
      if (error.code === "EACCES") reject(error);
      if (error.code === "ECONNREFUSED") settle("dead");
      else settle(error.code === "ENOENT" ? "gone" : "held");
    });
    // A holder that has accepted too many connections ends one at once as well. So this is no sign that the lock is free.
    socket.once("close", () => settle("held"));
    socket.resume();
  });
}

/** @param {string} path */
function hasAddress(path) {
  return isShort(path) || existsSync(OPEN_FOLDERS);
}

/** @param {string} path */
function isShort(path) {
  return Buffer.byteLength(path) <= MAX_ADDRESS_BYTES;
}

/**
 * Calls the work with an address of a socket. For a path that is too long, the address goes through its folder, which is open meanwhile.
 *
 * @template T
 * @param {string} folder
 * @param {string} name
 * @param {(address: string) => Promise<T>} work
 * @returns {Promise<T>}
 */
async function withAddress(folder, name, work) {
  const path = join(folder, name);
  if (isShort(path)) return work(path);
  const descriptor = openSync(folder, "r");
  try {
    return await work(join(OPEN_FOLDERS, String(descriptor), name));
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Gives a folder up. A name that cannot be removed is dead once the socket is closed.
 *
 * @param {string} folder
 * @param {string} name
 * @param {() => void} close
 */
function drop(folder, name, close) {
  removeFolder(folder, [name]);
  close();
}

/**
 * Removes what processes left that were killed before they had the lock.
 *
 * @param {string} path
 */
function removeOrphans(path) {
  const prefix = `${basename(path)}.`;
  try {
    for (const name of readdirSync(dirname(path))) {
      const folder = join(dirname(path), name);
      if (!name.startsWith(prefix) || !/^[0-9a-f-]{18}$/.test(name.slice(prefix.length))) continue;
      if (ageMs(folder) > ORPHAN_MS) removeFolder(folder, namesIn(folder));
    }
  } catch {
    // The lock is held all the same.
  }
}

/**
 * @param {string} folder
 * @param {readonly string[]} names The names in it.
 */
function removeFolder(folder, names) {
  try {
    for (const name of names) unlinkIfThere(join(folder, name));
    rmdirSync(folder);
  } catch {
    // Another process has it by now, or the file system is gone.
  }
}

/** @param {string} path */
function unlinkIfThere(path) {
  try {
    unlinkSync(path);
  } catch (error) {
    if (/** @type {SystemError} */ (error).code !== "ENOENT") throw error;
  }
}

/**
 * @param {string} folder
 * @returns {readonly string[]}
 */
function namesIn(folder) {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (/** @type {SystemError} */ (error).code === "ENOENT") return [];
    throw error;
  }
}

/** @param {string} path */
function ageMs(path) {
  try {
    return Date.now() - statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

/**
 * @param {string} code
 * @param {string} message
 */
function coded(code, message) {
  return Object.assign(new Error(message), { code });
}
