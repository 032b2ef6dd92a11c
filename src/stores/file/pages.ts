/**
 * The first two pages of an LMDB file. Each has the number of the commit that wrote it, and the later one counts. With them this file works
 * around three faults of `lmdb` 3.5:
 *
 * 1. Opening a file can take back a commit. (a) P opens the file and reads commit 4. (b) Q makes commit 5, which is confirmed. (c) P sets the
 *    shared count of commits to 4. (d) The next transaction would be another commit 5, without Q's changes. So each transaction compares its number
 *    with the file before it writes. Opening the file again corrects the count. The check also finds a transaction that failed to begin.
 * 2. After a flush that failed, the system takes its pages for written, and LMDB would build on them. Writing the two pages again repairs that.
 * 3. `lmdb` overwrites its own memory if it cannot write a page. So the file grows before a transaction writes.
 */
import { fdatasyncSync, fstatSync, readSync, writeSync } from "node:fs";
import { codedError } from "./protocol.ts";

/** Two pages of the largest size. */
const HEADS_BYTES = 2 * 65_536;
/** Offsets in a page: its size, the last page in use, and the commit that wrote the page. */
const PAGE_BYTES_AT = 48;
const LAST_PAGE_AT = 144;
const COMMIT_AT = 152;
const HEAD_BYTES = 160;
/** Both heads of a file whose pages have the usual size. */
const LIKELY_BYTES = 4_096 + HEAD_BYTES;
/** The least growth of a file. */
const GROWTH_BYTES = 65_536;
const buffer = Buffer.alloc(HEADS_BYTES);

export interface Heads {
  readonly lastPage: number;
  readonly pageBytes: number;
}

/** Throws if the transaction would not follow the latest commit (fault 1). */
export function checkCommit(descriptor: number, transaction: number): Heads {
  readSync(descriptor, buffer, 0, LIKELY_BYTES, 0);
  const pageBytes = buffer.readUInt32LE(PAGE_BYTES_AT);
  if (pageBytes + HEAD_BYTES > LIKELY_BYTES) readSync(descriptor, buffer, 0, pageBytes + HEAD_BYTES, 0);
  let [commit, lastPage] = [0, 0];
  for (const head of [0, pageBytes]) {
    lastPage = Math.max(lastPage, Number(buffer.readBigUInt64LE(head + LAST_PAGE_AT)));
    commit = Math.max(commit, Number(buffer.readBigUInt64LE(head + COMMIT_AT)));
  }
  if (transaction !== commit + 1)
    throw codedError("STALE", `commit ${transaction} would follow commit ${commit}`);
  return { lastPage, pageBytes };
}

/** In a transaction: writes the two pages again as they are, and flushes them (fault 2). */
export function rewriteHeads(descriptor: number): void {
  const bytes = readSync(descriptor, buffer, 0, HEADS_BYTES, 0);
  writeSync(descriptor, buffer, 0, bytes, 0);
  fdatasyncSync(descriptor);
}

/** Fills the file with zeros up to a size (fault 3). Throws ENOSPC and the like. Returns the size of the file. */
export function growTo(descriptor: number, leastBytes: number): number {
  const { size } = fstatSync(descriptor);
  if (size >= leastBytes) return size;
  const zeros = Buffer.alloc(leastBytes - size + GROWTH_BYTES);
  let done = 0;
  while (done < zeros.length) done += writeSync(descriptor, zeros, done, zeros.length - done, size + done);
  return size + done;
}
