/** Opens the file of a folder, after checking everything that can be wrong: `lmdb` ends the process if it fails to open a file. */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { makeFolder, takeLock } from "../../platform/index.ts";
import { Database } from "./database.ts";
import { isOpenHere } from "./open-files.ts";
import { codedError, failureOf } from "./protocol.ts";

/** The time to wait for another thread or process that opens or closes the file. */
const OPEN_MS = 3_000;
const PAUSE_MS = 5;
/** The largest that LMDB writes to a new folder, and more. */
const ROOM_BYTES = 65_536;
/** LMDB's mark and version, and where version 2 and the version before it have them. */
const MAGIC = 0xbeefc0de;
const DATA_VERSION = 2;
const HEAD_AT = 24;
const OLD_HEAD_AT = 16;
/** Two pages, with which every file of LMDB begins. */
const LEAST_BYTES = 8_192;
/** A file of zeros that is larger than this was damaged; a smaller one was being made when the power was lost. */
const NEW_BYTES = 1_048_576;
/** Some systems do not let a folder be opened or flushed, and a folder above may belong to another user. */
const NOT_FLUSHABLE = new Set<string | number>(["EACCES", "EPERM", "EISDIR", "EINVAL", "ENOTSUP"]);

/** File systems on which locks and shared memory do not work between machines, by the number that the kernel gives them. */
const networkFileSystems = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "CIFS"],
  [0xfe534d42, "SMB2"],
  [0x5346414f, "AFS"],
  [0x6b414653, "AFS"],
  [0x00c36400, "Ceph"],
  [0x0bd00bd0, "Lustre"],
  [0x01021997, "9P"],
  [0x786f4256, "VirtualBox shared folder"],
  [0x7461636f, "OCFS2"],
  [0x47504653, "GPFS"],
]);

/** The name of a network file system, by the number of `statfs`, which may be signed. */
export function networkFileSystem(type: number): string | undefined {
  return networkFileSystems.get(type >>> 0);
}

type Run = <T>(work: () => T) => T;

export class Opening {
  readonly #folder: string;
  readonly #run: Run;
  /** The uppermost folder whose names may not be on the disk. */
  #uppermost: string;

  /** `run` runs work that has transactions. */
  constructor(folder: string, run: Run) {
    this.#folder = folder;
    this.#run = run;
    this.#uppermost = dirname(folder);
  }

  /** Opens the database, and makes the folder if it is missing. */
  async open(): Promise<Database> {
    const made = makeMissing(this.#folder);
    // All made folders are above this one.
    if (made !== undefined && made.length <= this.#uppermost.length) this.#uppermost = dirname(made);
    checkFileSystem(this.#folder);
    const endMs = performance.now() + OPEN_MS;
    for (;;) {
      // The first process sets up LMDB's lock; if it is killed meanwhile, a second one would continue with half a lock.
      const release = await takeLock(join(this.#folder, "opening"), OPEN_MS);
      if (release === undefined) throw codedError("EBUSY", "another process does not finish opening it");
      try {
        if (!isOpenHere(this.#folder)) return await this.#openFile();
      } finally {
        release();
      }
      if (performance.now() > endMs) throw codedError("OPEN_TWICE", "another thread has it");
      await sleep(PAUSE_MS);
    }
  }

  async #openFile(): Promise<Database> {
    const path = join(this.#folder, "locks.mdb");
    checkRoom(this.#folder);
    checkFile(path);
    const lmdb = await loadLmdb();
    const database = this.#run(() => Database.open(lmdb, path));
    try {
      this.#run(() => database.begin());
      // LMDB has flushed the file. Its name, and those of new folders, have to be on the disk too.
      flushNames(this.#folder, this.#uppermost);
    } catch (error) {
      await database.close();
      throw error;
    }
    this.#uppermost = dirname(this.#folder);
    return database;
  }
}

/** /proc refuses folders with ENOENT, which means a missing file once the folder is there. */
function makeMissing(folder: string): string | undefined {
  try {
    return makeFolder(folder);
  } catch (error) {
    const { code, message } = failureOf(error);
    throw code === "ENOENT" ? codedError("NO_FOLDER", message) : error;
  }
}

function checkFileSystem(folder: string): void {
  // The numbers are those of Linux.
  const name = process.platform === "linux" ? networkFileSystem(statfsSync(folder).type) : undefined;
  if (name !== undefined) throw codedError("NETWORK_FOLDER", name);
}

function checkRoom(folder: string): void {
  // Always the same name, so that killed processes leave at most one file.
  const probe = join(folder, "probe");
  try {
    writeFileSync(probe, Buffer.alloc(ROOM_BYTES), { flush: true });
  } finally {
    rmSync(probe, { force: true });
  }
}

function checkFile(path: string): void {
  for (const each of [path, `${path}-lock`]) {
    if (existsSync(each)) accessSync(each, constants.R_OK | constants.W_OK);
  }
  if (!existsSync(path)) return;
  const { size } = statSync(path);
  // Just being made.
  if (size === 0) return;
  // The power was lost before LMDB's first flush. Nothing was confirmed from such a file.
  if (size <= NEW_BYTES && readFileSync(path).every((byte) => byte === 0)) rmSync(path);
  else checkHead(path, size);
}

function checkHead(path: string, size: number): void {
  const head = Buffer.alloc(HEAD_AT + 8);
  const descriptor = openSync(path, "r");
  try {
    readSync(descriptor, head);
  } finally {
    closeSync(descriptor);
  }
  const magicAt = [HEAD_AT, OLD_HEAD_AT].find((at) => head.readUInt32LE(at) === MAGIC);
  if (size < LEAST_BYTES || magicAt === undefined)
    throw codedError(-30793, "it does not begin as a file of LMDB");
  const version = head.readUInt32LE(magicAt + 4);
  if (magicAt !== HEAD_AT || version !== DATA_VERSION) throw codedError(-30794, `its version is ${version}`);
}

/** Flushes the names in a folder and in those above it, up to `last`. */
function flushNames(folder: string, last: string): void {
  try {
    const descriptor = openSync(folder, "r");
    try {
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (!NOT_FLUSHABLE.has(failureOf(error).code)) throw error;
  }
  if (folder !== last) flushNames(dirname(folder), last);
}

async function loadLmdb(): Promise<typeof import("lmdb")> {
  try {
    return await import("lmdb");
  } catch (cause) {
    throw codedError("NO_LMDB", cause instanceof Error ? cause.message : String(cause));
  }
}
