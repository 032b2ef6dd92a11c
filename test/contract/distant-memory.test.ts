/**
 * The suite on a store that is as far away as a real engine: several instances, answers that take a while, pushes that
 * come later still, requests that arrive twice. It shows that the suite itself asks for nothing that only memory has.
 */
import { HoldfastError, memoryStore, type Store } from "holdfast";
import { type Fault, faultyStore, type StoreHarness, storeContract } from "holdfast/testing";
import * as vitest from "vitest";
import { storeOver } from "../stores/store-over.ts";

const there: Fault = { beforeMs: 1, afterMs: 1, repeatAfterMs: 0 };

const distant: StoreHarness = {
  name: "memory, far away",
  async open(options) {
    const backend = memoryStore(options);
    return {
      store: async () => instanceOver(backend),
      close: () => backend.close(),
    };
  },
};

/** Closing an instance leaves the backend to the others. */
function instanceOver(backend: Store): Store {
  const subscriptions: (() => void)[] = [];
  let closed = false;
  return faultyStore(
    storeOver(backend, {
      name: "distant",
      onGrant(owner, listener) {
        const unsubscribe = backend.onGrant(owner, listener);
        subscriptions.push(unsubscribe);
        return unsubscribe;
      },
      async close() {
        closed = true;
        for (const unsubscribe of subscriptions) unsubscribe();
      },
    }),
    () => (closed ? { error: new HoldfastError("CLOSED", "This instance is closed.") } : there),
  );
}

storeContract(distant, { describe: vitest.describe.concurrent, it: vitest.it });
