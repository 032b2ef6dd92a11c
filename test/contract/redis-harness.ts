import type { Store } from "holdfast";
import { redisStore } from "holdfast/redis";
import type { StoreHarness } from "holdfast/testing";
import type { Connected } from "../engines/redis-clients.ts";

/** As many as the tests of the contract open at once. */
const INSTANCES = 4;

/**
 * Stores for the contract suite. The instances of one test stand for processes, so each has a client of its own; but
 * all tests together use the same few, because an application has one as well, and connecting to a cluster is slow.
 */
export function redisHarness(name: string, connect: () => Promise<Connected>, tickMs = 20) {
  const clients: Promise<Connected>[] = [];
  const harness: StoreHarness = {
    name,
    tickMs,
    async open(options) {
      const stores: Store[] = [];
      return {
        async store() {
          clients[stores.length] ??= connect();
          const connected = clients[stores.length] as Promise<Connected>;
          const place = stores.length;
          const store = redisStore((await connected).client, options);
          stores[place] = store;
          return store;
        },
        async close() {
          await Promise.all(stores.map((store) => store.close()));
        },
      };
    },
  };
  /** For clients whose connecting would disturb a test that runs meanwhile. */
  const connectAll = async () => {
    for (let place = 0; place < INSTANCES; place++) clients[place] ??= connect();
    await Promise.all(clients);
  };
  const end = async () => {
    for (const connected of await Promise.all(clients)) connected.end();
  };
  return { harness, connectAll, end };
}
