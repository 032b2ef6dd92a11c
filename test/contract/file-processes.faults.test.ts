/** The suite over a folder that several processes share: each instance of a test is in a process of its own. */
import { rmSync } from "node:fs";
import type { Store } from "holdfast";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { newFolder } from "../stores/file/folders.ts";
import { StoreProcess } from "./process-stores.ts";

/** As many as the tests of the contract open at once. */
const INSTANCES = 4;

describe("file: several processes", () => {
  const folder = newFolder();
  const processes: StoreProcess[] = [];

  beforeAll(async () => {
    for (let place = 0; place < INSTANCES; place++) processes.push(new StoreProcess(folder));
    // The first call of each makes its thread, which takes its time on a busy machine.
    await Promise.all(
      processes.map(async (each) => (await each.store({})).look({ key: "any", maxClaims: 0 })),
    );
  }, 60_000);

  afterAll(() => {
    for (const each of processes) each.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const harness: StoreHarness = {
    name: "an instance in each",
    tickMs: 50,
    async open(options) {
      const stores: Promise<Store>[] = [];
      return {
        async store() {
          expect(stores.length, "instances at once").toBeLessThan(INSTANCES);
          const store = processes[stores.length]!.store(options);
          stores.push(store);
          return store;
        },
        async close() {
          await Promise.all(stores.map(async (store) => (await store).close()));
        },
      };
    },
  };

  storeContract(harness, { describe: describe.concurrent, it });
});
