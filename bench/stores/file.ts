/** A folder: the store against proper-lockfile, which makes a folder for each lock and keeps nothing on purpose. */
import { mkdtempSync, rmSync, statfsSync } from "node:fs";
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
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
