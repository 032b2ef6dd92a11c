/** The suite through a lock server, over memory. */
import { memoryStore, type Store } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { describe, it } from "vitest";
import { startLockServer } from "../server/lock-server.ts";

const harness: StoreHarness = {
  name: "remote over memory",
  tickMs: 20,
  async open(options) {
    const server = await startLockServer({ store: memoryStore(options) });
    const stores: Store[] = [];
    return {
      async store() {
        const store = remoteStore(server.url);
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
