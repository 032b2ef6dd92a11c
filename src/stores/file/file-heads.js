/** The first two pages of the file: each says which commit made it, and the later one counts. */
import { fdatasyncSync, fstatSync, readSync, writeSync } from "node:fs";
import { codedError } from "./failures.js";

/** @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root */

/** What a transaction fails with that would not follow upon the latest commit. */
export const STALE_BASE = "STALE_BASE";

/** Two pages, of the largest size that there is. */
const HEADS_BYTES = 2 * 65_536;
/** Where a head says how large pages are; the heads are the first two pages. */
const PAGE_BYTES_AT = 48;
/** Where it says which page is the last one in use, and which commit made it. */
const LAST_PAGE_AT = 144;
const COMMIT_AT = 152;
const HEAD_BYTES = 160;
/** What has both heads where pages have the usual size. */
const LIKELY_BYTES = 4_096 + HEAD_BYTES;
/** What a file grows by at least, in bytes. */
const GROWTH_BYTES = 65_536;

/**
 * @typedef {object} Heads
 * @property {number} commit The latest one.
 * @property {number} lastPage The last one in use, counted from 0.
 * @property {number} pageBytes
 */

const heads = Buffer.alloc(HEADS_BYTES);

/**
 * After a flush that failed, the system takes what it could not write for written. LMDB relies on the latest commit but one being on
 * the disk: the next one writes over what the one before that needs. So the pages that say which is the latest are written once more,
 * as they are.
 *
 * @param {number} descriptor
 */
export function flushAnew(descriptor) {
  const bytes = readSync(descriptor, heads, 0, HEADS_BYTES, 0);
  writeSync(descriptor, heads, 0, bytes, 0);
  fdatasyncSync(descriptor);
}

/**
 * Throws, before anything is written, where the present transaction would not follow upon the latest commit. `lmdb` counts commits
 * in memory that all processes share, and a process that opens the file sets that count to what it has read a moment before: (1) P
 * opens the file and reads 4. (2) Q makes commit 5, and is answered. (3) P sets the count to 4. (4) The next transaction would be
 * another commit 5, without what the former one has done. Nor may anything be done where the transaction failed to begin, which `lmdb`
 * does not tell: then nobody is kept out. Opening the file anew puts the count right.
 *
 * @param {Root} root
 * @param {number} descriptor
 * @returns {Heads}
 */
export function checkBase(root, descriptor) {
  const heads = readHeads(descriptor);
  const next = root.getWriteTxnId();
  if (next !== heads.commit + 1) {
    throw codedError(STALE_BASE, `commit ${next} would follow upon commit ${heads.commit}`);
  }
  return heads;
}

/**
 * @param {number} descriptor
 * @returns {Heads}
 */
function readHeads(descriptor) {
  readSync(descriptor, heads, 0, LIKELY_BYTES, 0);
  const pageBytes = heads.readUInt32LE(PAGE_BYTES_AT);
  if (pageBytes + HEAD_BYTES > LIKELY_BYTES) readSync(descriptor, heads, 0, pageBytes + HEAD_BYTES, 0);
  let [commit, lastPage] = [0, 0];
  for (const head of [0, pageBytes]) {
    lastPage = Math.max(lastPage, Number(heads.readBigUInt64LE(head + LAST_PAGE_AT)));
    commit = Math.max(commit, Number(heads.readBigUInt64LE(head + COMMIT_AT)));
  }
  return { commit, lastPage, pageBytes };
}

/**
 * Makes the file at least that large, with zeros that are really written, so that there is room for as much. Throws where the disk has
 * none. That is better met here than by `lmdb`: where it fails to write a page it writes over its own memory, and the process ends sooner or later.
 *
 * @param {number} descriptor
 * @param {number} leastBytes
 * @returns {number} How large it is.
 */
export function grow(descriptor, leastBytes) {
  const { size } = fstatSync(descriptor);
  if (size >= leastBytes) return size;
  const zeros = Buffer.alloc(leastBytes - size + GROWTH_BYTES);
  let done = 0;
  while (done < zeros.length) done += writeSync(descriptor, zeros, done, zeros.length - done, size + done);
  return size + done;
}
