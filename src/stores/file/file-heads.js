/** The first two pages of the file: each says which commit made it, and the later one counts. */
import { fdatasyncSync, readSync, writeSync } from "node:fs";
import { codedError } from "./failures.js";

/** @typedef {import("lmdb").RootDatabase<Buffer, Buffer>} Root */

/** What a transaction fails with that would not follow upon the latest commit. */
export const STALE_BASE = "STALE_BASE";

/** Two pages, of the largest size that there is. */
const HEADS_BYTES = 2 * 65_536;
/** Where a head says how large pages are, and which commit made it; the heads are the first two pages. */
const PAGE_BYTES_AT = 48;
const COMMIT_AT = 152;

const numberBytes = Buffer.alloc(8);

/**
 * After a flush that failed, the system takes what it could not write for written. LMDB relies on the latest commit but one being on
 * the disk: the next one writes over what the one before that needs. So the pages that say which is the latest are written once more,
 * as they are.
 *
 * @param {number} descriptor
 */
export function flushAnew(descriptor) {
  const heads = Buffer.alloc(HEADS_BYTES);
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
 */
export function checkBase(root, descriptor) {
  const latest = Math.max(commitAt(descriptor, 0), commitAt(descriptor, pageBytes(descriptor)));
  const next = root.getWriteTxnId();
  if (next !== latest + 1) {
    throw codedError(STALE_BASE, `commit ${next} would follow upon commit ${latest}`);
  }
}

/**
 * @param {number} descriptor
 * @param {number} head
 */
function commitAt(descriptor, head) {
  readSync(descriptor, numberBytes, 0, 8, head + COMMIT_AT);
  return Number(numberBytes.readBigUInt64LE(0));
}

/** @param {number} descriptor */
function pageBytes(descriptor) {
  readSync(descriptor, numberBytes, 0, 4, PAGE_BYTES_AT);
  return numberBytes.readUInt32LE(0);
}
