/**
 * Finds out whether this process has the file of a folder open, in any thread or copy of LMDB. A process that opens the file twice and closes it
 * once loses the system's locks of it; another process would then set up LMDB's lock again, and two could write at a time.
 */
import { fstatSync, readdirSync, type Stats, statSync } from "node:fs";
import { join } from "node:path";

/** Linux lists the open files of a process here. Other systems have no such list. */
const DESCRIPTORS = "/proc/self/fd";

export function isOpenHere(folder: string): boolean {
  // LMDB closes this file last.
  const lockFile = identity(() => statSync(join(folder, "locks.mdb-lock")));
  if (lockFile === undefined) return false;
  return descriptors().some((name) => identity(() => fstatSync(Number(name))) === lockFile);
}

function identity(stat: () => Stats): string | undefined {
  try {
    const { dev, ino } = stat();
    return `${dev}-${ino}`;
  } catch {
    return undefined;
  }
}

function descriptors(): readonly string[] {
  try {
    return readdirSync(DESCRIPTORS);
  } catch {
    return [];
  }
}
