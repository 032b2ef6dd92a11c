import type { Store } from "holdfast";
import type { CasDriver } from "holdfast/cas";
import { fileStore } from "holdfast/file";
import { driverContract, type StoreHarness, storeContract } from "holdfast/testing";
import { describe, it } from "vitest";
import { fileDriver } from "../../src/stores/file/driver.ts";
import { keptFolder } from "../stores/file/folders.ts";

const { folder, start } = keptFolder();

const harness: StoreHarness = {
  name: "file",
  tickMs: 50,
  async open(options) {
    await start();
    const stores: Store[] = [];
    return {
      async store() {
        const store = fileStore(folder, options);
        stores.push(store);
        return store;
      },
      async close() {
        await Promise.all(stores.map((store) => store.close()));
      },
    };
  },
};

// Side by side, since most of a test's time is spent asleep.
const runner = { describe: describe.concurrent, it };

storeContract(harness, runner);
driverContract(
  {
    name: "file driver",
    async open() {
      const drivers: CasDriver[] = [];
      return {
        async driver() {
          const driver = fileDriver(folder);
          drivers.push(driver);
          return driver;
        },
        async close() {
          await Promise.all(drivers.map((driver) => driver.close?.()));
        },
      };
    },
  },
  runner,
);
