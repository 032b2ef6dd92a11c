import type { Etcd3 } from "etcd3";
import { type Store, systemClock } from "holdfast";
import { etcdStore } from "holdfast/etcd";
import type { DriverHarness, StoreHarness } from "holdfast/testing";
import { EtcdDriver } from "../../src/stores/etcd/driver.ts";

/** A short election timeout makes for short leases: the shortest is one of 1 s, which is 20 ticks. */
export const etcdSettings = ["--heartbeat-interval", "50", "--election-timeout", "500"];
const TICK_MS = 50;

/**
 * Stores and drivers for the contract suites. The instances of one test stand for processes, so each has a client of its own; all
 * tests together use the same few.
 */
export function etcdHarness(name: string, connect: (place: number) => Etcd3) {
  const clients: Etcd3[] = [];
  const clientOf = (place: number) => {
    clients[place] ??= connect(place);
    return clients[place];
  };
  const store: StoreHarness = {
    name,
    tickMs: TICK_MS,
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
  const driver: DriverHarness = {
    name: `${name}: its driver`,
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
            requestTimeoutMs: 5_000,
            keepIdleMs: 300_000,
            clockDrift: 0.001,
            clock: systemClock,
            random: Math.random,
          });
          drivers.push(driver);
          return driver;
        },
        async close() {
          await Promise.all(drivers.map((driver) => driver.close()));
        },
      };
    },
  };
  const end = () => {
    for (const client of clients) client.close();
  };
  return { store, driver, end };
}
