/** A folder: the store against proper-lockfile, which makes a folder for each lock and flushes nothing. */
import {
  closeSync,
  constants,
  fdatasyncSync,
  fstatSync,
  mkdtempSync,
  openSync,
  readSync,
  rmSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { Store } from "holdfast";
import { fileStore } from "holdfast/file";
import { lock } from "proper-lockfile";
import type { OpenContender } from "./contender.ts";

/** Makes a folder below `parent`. */
export async function openFile(parent: string): Promise<OpenContender> {
  const folder = mkdtempSync(join(parent, "holdfast-bench-"));
  const data = join(folder, "data");
  const stores: Store[] = [];
  return {
    async newStore() {
      const store = fileStore(data);
      stores.push(store);
      return store;
    },
    roundTrips: () => commitsIn(join(data, "locks.mdb")),
    roundTripsAre: "commits",
    url: `file:${data}`,
    peers: {
      "proper-lockfile": async (key) => {
        const path = join(folder, encodeURIComponent(key));
        return lock(path, { realpath: false, retries: { retries: 1_000, minTimeout: 1, maxTimeout: 20 } });
      },
    },
    bare: async (roundMs, callers) => bareWrites(join(folder, "bare"), roundMs, callers),
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

const PAGE_BYTES = 4_096;
/** The offset of the number of the commit, in the first two pages of an LMDB file. */
const COMMIT_AT = 152;

function commitsIn(path: string): number {
  const descriptor = openSync(path, constants.O_RDONLY);
  const commitOf = (page: number) => {
    const bytes = Buffer.alloc(8);
    readSync(descriptor, bytes, 0, 8, page * PAGE_BYTES + COMMIT_AT);
    return Number(bytes.readBigUInt64LE());
  };
  const commits = Math.max(commitOf(0), commitOf(1));
  closeSync(descriptor);
  return commits;
}

/** The bytes that a commit writes for each caller, and the page that makes it count. */
const CHANGE_BYTES = 512;
const HEAD_BYTES = 128;
const FILE_BYTES = 4_194_304;

/**
 * The time of a caller's cycle, in nanoseconds, if nothing but the disk took any time: two commits for all callers, each of which flushes its changes
 * and then the page that makes it count.
 */
function bareWrites(path: string, roundMs: number, callers: number): number {
  const descriptor = openSync(path, constants.O_CREAT | constants.O_RDWR);
  if (fstatSync(descriptor).size < FILE_BYTES) writeSync(descriptor, Buffer.alloc(FILE_BYTES));
  const changes = Buffer.alloc(CHANGE_BYTES * callers, 1);
  const head = Buffer.alloc(HEAD_BYTES, 1);
  let at = PAGE_BYTES;
  const commit = () => {
    if (at + changes.length > FILE_BYTES) at = PAGE_BYTES;
    at += writeSync(descriptor, changes, 0, changes.length, at);
    fdatasyncSync(descriptor);
    writeSync(descriptor, head, 0, HEAD_BYTES, 0);
    fdatasyncSync(descriptor);
  };
  const startMs = performance.now();
  let cycles = 0;
  do {
    commit();
    commit();
    cycles += callers;
  } while (performance.now() - startMs < roundMs);
  closeSync(descriptor);
  return ((performance.now() - startMs) * 1e6) / cycles;
}
