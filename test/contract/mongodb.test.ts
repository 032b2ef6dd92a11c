/** The suites over a real server, each instance with a client of its own. */
import type { Store } from "holdfast";
import type { CasDriver } from "holdfast/cas";
import { mongodbStore } from "holdfast/mongodb";
import { driverContract, type StoreHarness, storeContract, type TestRunner } from "holdfast/testing";
import { MongoClient as Client7 } from "mongodb";
import { MongoClient as Client6 } from "mongodb6";
import { afterAll, describe, it } from "vitest";
import { recordsIn } from "../../src/stores/mongodb/client.ts";
import { MongodbDriver } from "../../src/stores/mongodb/driver.ts";
import { canRunMongodb, startMongodb } from "../engines/mongodb.ts";

const server = (await canRunMongodb()) ? await startMongodb() : undefined;

describe.skipIf(server === undefined)("mongodb", () => {
  const isMongod = server?.isMongod === true;
  /**
   * What stands for processes. All tests use the same few, as an application has one as well. Every second one has the
   * newer version of the driver, unless the server is too old for it, as the stand-in for MongoDB is.
   */
  const clients: (Client6 | Client7)[] = [];
  const clientAt = (place: number) => {
    const Client = server!.wireVersion >= 9 && place % 2 === 1 ? Client7 : Client6;
    clients[place] ??= new Client(server!.url);
    return clients[place];
  };

  afterAll(async () => {
    await Promise.all(clients.map((client) => client.close()));
    await server?.stop();
  });

  const harness: StoreHarness = {
    name: "the store",
    // The server is a Java program that has just started, and shares the machine with other tests.
    tickMs: 50,
    async open(options) {
      const stores: Store[] = [];
      return {
        async store() {
          const store = mongodbStore(clientAt(stores.length).db("contract"), { ...options, maxPollMs: 50 });
          stores.push(store);
          // The first use takes several round trips. From the second one on, the server's time is known as well as usually.
          for (let turn = 0; turn < 2; turn++) await store.look({ key: "first-use", maxClaims: 1 });
          return store;
        },
        async close() {
          await Promise.all(stores.map((store) => store.close()));
        },
      };
    },
  };
  storeContract(harness, { describe: describe.concurrent, it });

  driverContract(
    {
      name: "the driver",
      checksTime: isMongod,
      pushes: isMongod,
      async open() {
        const drivers: MongodbDriver[] = [];
        return {
          async driver() {
            const records = recordsIn(clientAt(drivers.length).db("drivers"), undefined, 5_000);
            const options = { durability: "local", createIndex: true, timeoutMs: 5_000 } as const;
            const driver = new MongodbDriver(records, options);
            drivers.push(driver);
            // What the server can do is known from the first use on.
            await driver.read([]);
            return isMongod ? driver : withoutPushes(driver);
          },
          async close() {
            await Promise.all(drivers.map((driver) => driver.close()));
          },
        };
      },
    },
    isMongod ? { describe, it } : { describe, it: skippingOrder(it) },
  );
});

/** A server without a change stream refuses to listen, and `casStore` then looks by itself. */
function withoutPushes(driver: MongodbDriver): CasDriver {
  const { name, durability, checksTime } = driver;
  return {
    name,
    durability,
    checksTime,
    read: (keys) => driver.read(keys),
    swap: (batch) => driver.swap(batch),
    list: (prefix, after, limit) => driver.list(prefix, after, limit),
    sweep: (limit) => driver.sweep(limit),
  };
}

/** mongo-java-server orders texts by their UTF-16, not by their bytes as MongoDB does. */
function skippingOrder(define: TestRunner["it"]): TestRunner["it"] {
  const choose = (name: string, body: () => Promise<void>) =>
    name.startsWith("a listing is ordered by the bytes") ? define.skip(name, body) : define(name, body);
  return Object.assign(choose, { skip: define.skip });
}
