/** The suites over the map driver: on an owned clock, and over several processes with delays and no pushes. */
import { type Store, systemClock } from "holdfast";
import { casStore } from "holdfast/cas";
import { driverContract, ManualClock, type StoreHarness, storeContract } from "holdfast/testing";
import * as vitest from "vitest";
import { MapDatabase, mapDriver } from "../../examples/driver/map-driver.ts";
import { distantDriver } from "../stores/cas/distant-driver.ts";
import { LeaseDatabase, leaseDriver } from "../stores/etcd/lease-driver.ts";

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
    const database = new LeaseDatabase(() => clock.wallMs());
    const stores: Store[] = [];
    return {
      clock,
      async store() {
        const driver = leaseDriver(database, clock, `process-${stores.length}`);
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

const database = new MapDatabase(() => performance.timeOrigin + performance.now());
const distant: StoreHarness = {
  name: "cas, far away and without pushes",
  // A request takes half of the default tick.
  tickMs: 20,
  async open(options) {
    const stores: Store[] = [];
    return {
      async store() {
        const journey = () => ({ thereMs: 3 * Math.random(), backMs: 3 * Math.random() });
        const driver = distantDriver(mapDriver(database), { clock: systemClock, journey, pushes: false });
        const store = casStore(driver, { ...options, maxPollMs: 50 });
        stores.push(store);
        return store;
      },
      async close() {
        await Promise.all(stores.map((store) => store.close()));
      },
    };
  },
};

driverContract(
  {
    name: "the map driver",
    async open() {
      const database = new MapDatabase();
      return { driver: async () => mapDriver(database), close: async () => {} };
    },
  },
  vitest,
);
storeContract(manual, vitest);
storeContract(kept, vitest);
// Concurrent, because on a real clock the tests mostly sleep.
const concurrent = { describe: vitest.describe.concurrent, it: vitest.it };
storeContract(distant, concurrent);
