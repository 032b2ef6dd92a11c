/** A folder: the store against proper-lockfile, which makes a folder for each lock and keeps nothing on purpose. */
import {
  closeSync,
  constants,
  fdatasyncSync,
  mkdtempSync,
  openSync,
  rmSync,
  statfsSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Store } from "holdfast";
import { fileStore } from "holdfast/file";
import { lock } from "proper-lockfile";
import type { OpenContender, StoreContender } from "./contender.ts";

/** What the kernel calls a file system in memory. */
const TMPFS = 0x01021994;

/** On the disk of the folder for temporary files. */
export const file: StoreContender = {
  name: "file",
  open: () => openIn(tmpdir()),
};

/** In memory, which shows what is left when the disk costs nothing. Only where there is such a file system. */
export const fileInMemory: StoreContender | undefined = isInMemory("/dev/shm")
  ? { name: "file, in memory", open: () => openIn("/dev/shm") }
  : undefined;

function isInMemory(folder: string): boolean {
  try {
    return statfsSync(folder).type === TMPFS;
  } catch {
    return false;
  }
}

async function openIn(parent: string): Promise<OpenContender> {
  const folder = mkdtempSync(join(parent, "holdfast-bench-"));
  const data = join(folder, "data");
  const stores: Store[] = [];
  return {
    async newStore() {
      const store = fileStore(data);
      stores.push(store);
      return store;
    },
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
