/** The suite over the map driver: on an owned clock, and with several processes, delays and no pushes. */
import { type Store, systemClock } from "holdfast";
import { type CasStoreOptions, casStore } from "holdfast/cas";
import { ManualClock, type StoreHarness, storeContract } from "holdfast/testing";
import * as vitest from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";
import { distantDriver } from "../stores/cas/distant-driver.ts";
import { KeptDatabase, keptDriver } from "../stores/cas/kept-driver.ts";

const manual: StoreHarness = {
  name: "cas",
  async open(options) {
    const clock = new ManualClock();
    const database = new MapDatabase(() => clock.wallMs());
    const stores: Store[] = [];
    return {
      clock,
      async store() {
        const store = casStore(mapDriver(database), { ...options, clock });
        stores.push(store);
        return store;
      },
      sleep: (ms) => clock.advance(ms),
      async close() {
        await Promise.all(stores.map((store) => store.close()));
      },
    };
  },
};

const kept: StoreHarness = {
  name: "cas, without a clock",
  async open(options) {
    const clock = new ManualClock();
    const database = new KeptDatabase(() => clock.wallMs());
    const stores: Store[] = [];
    return {
      clock,
      async store() {
        const driver = keptDriver(database, clock, `process-${stores.length}`);
        const store = casStore(driver, { ...options, clock });
        stores.push(store);
        return store;
      },
      sleep: (ms) => clock.advance(ms),
      async close() {
        await Promise.all(stores.map((store) => store.close()));
      },
    };
  },
};

function distant(name: string, pushes: boolean): StoreHarness {
  const database = new MapDatabase(() => performance.timeOrigin + performance.now());
  return {
    name,
    // A request takes half of the usual tick already.
    tickMs: 20,
    async open(options) {
      const stores: Store[] = [];
      return {
        async store() {
          const journey = () => ({ thereMs: 3 * Math.random(), backMs: 3 * Math.random() });
          const driver = distantDriver(mapDriver(database), { clock: systemClock, journey, pushes });
          const settings: CasStoreOptions = { ...options, maxPollMs: 50 };
          const store = casStore(driver, settings);
          stores.push(store);
          return store;
        },
        async close() {
          await Promise.all(stores.map((store) => store.close()));
        },
      };
    },
  };
}

storeContract(manual, vitest);
storeContract(kept, vitest);
// Side by side, since on a real clock most of a test's time is spent asleep.
const concurrent = { describe: vitest.describe.concurrent, it: vitest.it };
storeContract(distant("cas, far away", true), concurrent);
storeContract(distant("cas, far away and without pushes", false), concurrent);
