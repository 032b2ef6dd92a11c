/** Run by runners.test.ts with `node --test`. */
import * as nodeTest from "node:test";
import { memoryStore } from "holdfast";
import { ManualClock, storeContract } from "holdfast/testing";

storeContract(
  {
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
  },
  nodeTest,
);
