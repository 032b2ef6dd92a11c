/** The suite through a lock server, over a folder: what its clients are told is on the disk. */
import type { Store } from "holdfast";
import { fileStore } from "holdfast/file";
import { remoteStore } from "holdfast/remote";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { describe, it } from "vitest";
import { startLockServer } from "../server/lock-server.ts";
import { keptFolder } from "../stores/file/folders.ts";

const { folder, start } = keptFolder();

const harness: StoreHarness = {
  name: "remote over a folder",
  tickMs: 50,
  async open(options) {
    await start();
    const server = await startLockServer({ store: fileStore(folder, options), closeStore: true });
    const stores: Store[] = [];
    return {
      async store() {
        const store = remoteStore(server.url, { durability: "local" });
        stores.push(store);
        return store;
      },
      async close() {
        await Promise.all(stores.map((store) => store.close()));
        await server.stop({ graceMs: 0 });
      },
    };
  },
};

storeContract(harness, { describe: describe.concurrent, it });
