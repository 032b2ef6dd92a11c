/**
 * A lock between all processes of a machine, for a path. It needs the rights to the folder of the path, and is free when its process has ended,
 * also after a kill.
 *
 * Node has no lock for files. So the lock is a folder that contains one Unix socket of its holder:
 *
 * - A candidate makes its own folder, listens at a socket in it, and renames the folder to the path. The system renames a folder over a missing
 *   or an empty folder only. So one of two candidates succeeds, and its socket is already there.
 * - A socket that refuses connections belongs to a process that has ended, because its name is used once. Any process may remove it, which
 *   empties the folder. A late removal finds nothing, because the socket of the next holder has another name.
 * - A holder that is busy or stopped still accepts connections, so it keeps its lock.
 *
 * On Windows, and for long paths on systems without /proc, every caller gets the lock.
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
import { connect, createServer, type Socket } from "node:net";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

type SystemError = NodeJS.ErrnoException;
type HolderState = "dead" | "gone" | "held";

/** The longest address of a Unix socket that all systems take, without the zero at its end. */
const MAX_ADDRESS_BYTES = 103;
/** Linux names the open folders of a process here. */
const OPEN_FOLDERS = "/proc/self/fd";
/** More waiting processes than this look again every few milliseconds. */
const MAX_CONNECTIONS = 100;
/** Between two attempts, in milliseconds. */
const PAUSE_MS = 5;
/** A candidate's folder that is older was left by a process that died. */
const ORPHAN_MS = 60_000;

/**
 * Takes the lock, and waits for it at most `withinMs`. Resolves to the function that releases it, or to undefined if another process
 * has kept it.
 */
export async function takeLock(path: string, withinMs: number): Promise<(() => void) | undefined> {
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
    // Another process may have taken the folder for an orphan, and removed the socket before the rename.
    if (!existsSync(join(path, id))) throw coded("EAGAIN", "the socket is gone");
  } catch (error) {
    drop(own, id, close);
    throw error;
  }
  removeOrphans(path);
  return () => drop(path, id, close);
}

/** Listens at a socket. Resolves to the function that ends it, and the connections of waiting processes. */
function listen(folder: string, name: string): Promise<() => void> {
  return withAddress(folder, name, async (address) => {
    const waiting = new Set<Socket>();
    const server = createServer((socket) => {
      // The others wait for its end.
      waiting.add(socket.unref());
      socket.on("error", () => {}).on("close", () => waiting.delete(socket));
    });
    server.maxConnections = MAX_CONNECTIONS;
    await new Promise<void>((resolve, reject) => {
      server.once("error", (error: SystemError) => reject(bindError(error)));
      // The primary process of a cluster would listen in place of its worker, and outlive it.
      server.listen({ path: address, exclusive: true }, () => resolve());
    });
    server.on("error", () => {}).unref();
    return () => {
      server.close();
      for (const socket of waiting) socket.destroy();
    };
  });
}

/** The folder could be made, so the rights are there. */
function bindError(error: SystemError): Error {
  return error.code === "EPERM" ? coded("ENOTSUP", "the file system has no sockets") : error;
}

/** Whether the folder has become that of the lock. */
function isRenamed(own: string, path: string): boolean {
  try {
    renameSync(own, path);
    return true;
  } catch (error) {
    const { code } = error as SystemError;
    if (code === "ENOTEMPTY" || code === "EEXIST") return false;
    throw error;
  }
}

/** Removes the socket of a holder that is dead, and waits for one that is not. */
async function comesFree(path: string, withinMs: number): Promise<boolean> {
  let isFree = true;
  for (const name of namesIn(path)) {
    const state = await withAddress(path, name, (address) => stateOf(address, withinMs));
    if (state === "dead") unlinkIfThere(join(path, name));
    if (state === "held") isFree = false;
  }
  if (!isFree) await sleep(Math.min(PAUSE_MS, Math.max(0, withinMs)));
  return isFree;
}

function stateOf(address: string, withinMs: number): Promise<HolderState> {
  return new Promise((resolve, reject) => {
    const socket = connect(address);
    let timer: NodeJS.Timeout | undefined;
    const settle = (state: HolderState) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(state);
    };
    socket.once("connect", () => {
      if (withinMs <= 0) settle("held");
      else timer = setTimeout(() => settle("held"), withinMs);
    });
    socket.once("error", (error: SystemError) => {
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

function hasAddress(path: string): boolean {
  return isShort(path) || existsSync(OPEN_FOLDERS);
}

function isShort(path: string): boolean {
  return Buffer.byteLength(path) <= MAX_ADDRESS_BYTES;
}

/** Calls the work with an address of a socket. For a path that is too long, the address goes through its folder, which is open meanwhile. */
async function withAddress<T>(
  folder: string,
  name: string,
  work: (address: string) => Promise<T>,
): Promise<T> {
  const path = join(folder, name);
  if (isShort(path)) return work(path);
  const descriptor = openSync(folder, "r");
  try {
    return await work(join(OPEN_FOLDERS, String(descriptor), name));
  } finally {
    closeSync(descriptor);
  }
}

/** Gives a folder up. A name that cannot be removed is dead once the socket is closed. */
function drop(folder: string, name: string, close: () => void): void {
  removeFolder(folder, [name]);
  close();
}

/** Removes the folders of processes that were killed before they had the lock. */
function removeOrphans(path: string): void {
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

function removeFolder(folder: string, names: readonly string[]): void {
  try {
    for (const name of names) unlinkIfThere(join(folder, name));
    rmdirSync(folder);
  } catch {
    // Another process has it by now, or the file system is gone.
  }
}

function unlinkIfThere(path: string): void {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as SystemError).code !== "ENOENT") throw error;
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder);
  } catch (error) {
    if ((error as SystemError).code === "ENOENT") return [];
    throw error;
  }
}

function ageMs(path: string): number {
  try {
    return Date.now() - statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

function coded(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
