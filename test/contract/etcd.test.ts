/** The suite over a real etcd, each instance with a client of its own. */
import { Etcd3 } from "etcd3";
import { type Store, systemClock } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import { driverContract, type StoreHarness, storeContract } from "holdfast/testing";
import * as vitest from "vitest";
import { EtcdDriver } from "../../src/stores/etcd/driver.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../engines/etcd.ts";

let server: EtcdMember;
const clients: Etcd3[] = [];

/** The instances of one test stand for processes, so each has a client of its own; all tests together use the same few. */
function clientOf(place: number): Etcd3 {
  clients[place] ??= new Etcd3({ hosts: server.url });
  return clients[place];
}

const harness: StoreHarness = {
  name: "etcd",
  // The shortest lease is one of 1 s, which is 20 ticks.
  tickMs: 50,
  async open(options) {
    const stores: Store[] = [];
    return {
      async store() {
        const store = etcdStore(clientOf(stores.length), options);
        stores.push(store);
        return store;
      },
      async close() {
        await Promise.all(stores.map((store) => store.close()));
      },
    };
  },
};

vitest.describe.skipIf(!canRunEtcd())("etcd", () => {
  vitest.beforeAll(async () => {
    // A short election timeout makes for short leases.
    server = await startEtcd(["--heartbeat-interval", "50", "--election-timeout", "500"]);
  }, 60_000);
  vitest.afterAll(async () => {
    for (const client of clients) client.close();
    await server.stop();
  });

  const concurrent = { describe: vitest.describe.concurrent, it: vitest.it };
  storeContract(harness, concurrent);

  driverContract(
    {
      name: "its driver",
      checksTime: false,
      sweeps: false,
      async open() {
        const drivers: EtcdDriver[] = [];
        return {
          async driver() {
            const driver = new EtcdDriver({
              client: clientOf(drivers.length),
              prefix: "driver",
              maxTxnOps: 128,
              flightMs: 5_000,
              keepIdleMs: 300_000,
              clockDrift: 0.001,
              clock: systemClock,
            });
            drivers.push(driver);
            return driver;
          },
          async close() {
            await Promise.all(drivers.map((driver) => driver.close()));
          },
        };
      },
    },
    concurrent,
  );
});
