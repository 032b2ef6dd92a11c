import { memoryStore } from "holdfast";
import { ManualClock, type StoreHarness, storeContract } from "holdfast/testing";
import * as vitest from "vitest";

const manual: StoreHarness = {
  name: "memory",
  shared: false,
  async open(options) {
    const clock = new ManualClock();
    const store = memoryStore({ ...options, clock });
    return {
      clock,
      store: async () => store,
      sleep: (ms) => clock.advance(ms),
      close: () => store.close(),
    };
  },
};

const real: StoreHarness = {
  name: "memory, on this machine's clock",
  shared: false,
  async open(options) {
    const store = memoryStore(options);
    return { store: async () => store, close: () => store.close() };
  },
};

storeContract(manual, vitest);
// Side by side, since on a real clock most of a test's time is spent asleep.
storeContract(real, { describe: vitest.describe.concurrent, it: vitest.it });
