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

storeContract(manual, vitest);
