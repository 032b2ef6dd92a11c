/** What can be told about a folder before anything is written into it. */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  readSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";

/** File systems on which neither locks nor shared memory work between machines, by the number that the kernel gives them. */
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

/**
 * @param {number} type As `statfs` tells it, which may be signed.
 * @returns {string | undefined} The name of a file system that will not do.
 */
export function networkFileSystem(type) {
  return networkFileSystems.get(type >>> 0);
}

/**
 * Throws where the folder cannot be used.
 *
 * @param {string} folder
 */
export function checkFolder(folder) {
  // Elsewhere the numbers mean something else.
  const name = process.platform === "linux" ? networkFileSystem(statfsSync(folder).type) : undefined;
  if (name !== undefined) throw coded("NETWORK_FOLDER", name);
}

/**
 * Throws where a file cannot be opened. All that can go wrong is met here first: lmdb brings the whole process down when it fails to
 * open a file.
 *
 * @param {string} folder
 * @param {string} file The path of the file that LMDB is going to open, or make.
 */
export function checkFile(folder, file) {
  checkRoom(folder);
  for (const path of [file, `${file}-lock`]) {
    if (existsSync(path)) accessSync(path, constants.R_OK | constants.W_OK);
  }
  if (existsSync(file)) checkHead(file);
}

/** What LMDB writes into a new folder fits into this. */
const ROOM_BYTES = 65_536;

/** @param {string} folder */
function checkRoom(folder) {
  // One name, so that those who are killed here leave one file.
  const probe = join(folder, "probe");
  try {
    writeFileSync(probe, Buffer.alloc(ROOM_BYTES), { flush: true });
  } finally {
    rmSync(probe, { force: true });
  }
}

/** What LMDB calls a file that is not its own. */
export const INVALID = -30793;
const VERSION_MISMATCH = -30794;
/** LMDB's mark and version, where this version of the file and the one before have them. */
const MAGIC = 0xbeefc0de;
const DATA_VERSION = 2;
const HEAD_AT = 24;
const OLD_HEAD_AT = 16;
/** Two pages, which every file begins with. */
const LEAST_BYTES = 8_192;

/**
 * Throws where a file is not one of LMDB.
 *
 * @param {string} file
 */
export function checkHead(file) {
  const { size } = statSync(file);
  // Just being made.
  if (size === 0) return;
  const head = beginningOf(file, HEAD_AT + 8);
  const magicAt = [HEAD_AT, OLD_HEAD_AT].find((at) => head.readUInt32LE(at) === MAGIC);
  if (size < LEAST_BYTES || magicAt === undefined) throw coded(INVALID, "it does not begin as one of LMDB");
  const version = head.readUInt32LE(magicAt + 4);
  if (magicAt !== HEAD_AT || version !== DATA_VERSION)
    throw coded(VERSION_MISMATCH, `its version is ${version}`);
}

/**
 * Removes `locks.mdb` where the power was lost before any of it was on the disk: it may have its size, and nothing in it. Then nothing was ever
 * written to a log.
 *
 * @param {string} folder
 */
export function removeUnbegun(folder) {
  const base = join(folder, "locks.mdb");
  const isEmpty = (/** @type {string} */ file) =>
    !existsSync(file) || beginningOf(file, LEAST_BYTES).every((byte) => byte === 0);
  // Without a size, it is just being made.
  if (
    existsSync(base) &&
    statSync(base).size > 0 &&
    [base, join(folder, "log-0"), join(folder, "log-1")].every(isEmpty)
  )
    rmSync(base);
}

/**
 * @param {string} file
 * @param {number} bytes
 */
function beginningOf(file, bytes) {
  const beginning = Buffer.alloc(bytes);
  const descriptor = openSync(file, "r");
  try {
    readSync(descriptor, beginning);
  } finally {
    closeSync(descriptor);
  }
  return beginning;
}

/**
 * @param {string | number} code
 * @param {string} message
 */
function coded(code, message) {
  return Object.assign(new Error(message), { code });
}
