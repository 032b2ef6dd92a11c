/** A folder: the store against proper-lockfile, which makes a folder for each lock and keeps nothing on purpose. */
import {
  closeSync,
  constants,
  fdatasyncSync,
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

/** In a folder of its own below this one. */
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
/** Where each of the first two pages of a file of LMDB has the number of the commit that it describes. */
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

/** What a commit of half of the callers' changes writes, of a hundred neighbouring keys, and in what place: no two side by side. */
const COMMIT_PAGES = 8;

/**
 * What the disk could make of it if nothing else took any time: for each half of the callers, pages that are written and flushed twice,
 * and after the first of them one more, which makes it count. What it takes for each caller, in nanoseconds.
 */
function bareWrites(path: string, roundMs: number, callers: number): number {
  // What was there stays, so that only its contents are new to the disk.
  const descriptor = openSync(path, constants.O_CREAT | constants.O_RDWR);
  const page = Buffer.alloc(PAGE_BYTES, 1);
  const commit = (from: number) => {
    for (let nth = 0; nth < COMMIT_PAGES; nth++) {
      writeSync(descriptor, page, 0, PAGE_BYTES, (from + 2 * nth) * PAGE_BYTES);
    }
    fdatasyncSync(descriptor);
  };
  const flushHead = () => {
    writeSync(descriptor, page, 0, PAGE_BYTES, 0);
    fdatasyncSync(descriptor);
  };
  const startMs = performance.now();
  let cycles = 0;
  do {
    commit(1);
    flushHead();
    commit(2);
    cycles += callers / 2;
  } while (performance.now() - startMs < roundMs);
  closeSync(descriptor);
  return ((performance.now() - startMs) * 1e6) / cycles;
}
