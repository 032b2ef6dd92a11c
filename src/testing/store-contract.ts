import assert from "node:assert/strict";
import { batches } from "./contract/batches.ts";
import { clientGroups } from "./contract/client-groups.ts";
import { clientLeases } from "./contract/client-leases.ts";
import { clientLocks } from "./contract/client-locks.ts";
import { clientNetwork } from "./contract/client-network.ts";
import { clientWaiting } from "./contract/client-waiting.ts";
import { closing } from "./contract/closing.ts";
import { fencing } from "./contract/fencing.ts";
import { granting } from "./contract/granting.ts";
import type { StoreHarness, TestRunner } from "./contract/harness.ts";
import { identity } from "./contract/identity.ts";
import { lifetimes } from "./contract/lifetimes.ts";
import { looking } from "./contract/looking.ts";
import { pushing } from "./contract/pushing.ts";
import { queueing } from "./contract/queueing.ts";
import { type DefineTest, type Needs, Trial } from "./contract/trial.ts";
import { values } from "./contract/values.ts";

export type { OpenOptions, StoreHarness, StoreWorld, TestRunner } from "./contract/harness.ts";

const themes: readonly (readonly [string, (test: DefineTest) => void])[] = [
  ["granting", granting],
  ["queueing", queueing],
  ["pushing", pushing],
  ["lifetimes", lifetimes],
  ["identity", identity],
  ["fencing", fencing],
  ["batches", batches],
  ["looking", looking],
  ["values", values],
  ["closing", closing],
  ["client: locks", clientLocks],
  ["client: waiting", clientWaiting],
  ["client: leases", clientLeases],
  ["client: network", clientNetwork],
  ["client: groups and administration", clientGroups],
];

/**
 * Defines the contract suite for a store: what every store must do, first verb by verb and then as applications meet
 * it, through the client. A store that passes can be used wherever another one is.
 *
 * The suite only defines tests; the runner runs and reports them. A test fails by rejecting, with an AssertionError
 * where the store broke the contract. Tests use keys of their own, so they may share a backend and run concurrently.
 *
 * @example
 * import * as vitest from "vitest";
 * import { storeContract } from "holdfast/testing";
 *
 * storeContract({ name: "mine", open: async () => openMyStore() }, vitest);
 */
export function storeContract(harness: StoreHarness, runner: TestRunner): void {
  const { describe, it } = runner;
  const { counts = true, shared = true, bounded = true } = harness;
  const canMeet = (needs: Needs) =>
    (counts || needs.counts === undefined) &&
    (shared || needs.shared === undefined) &&
    (bounded || needs.maxWaiters === undefined);
  const test: DefineTest = (name, body, needs = {}) => {
    const { maxWaiters } = needs;
    const define = canMeet(needs) ? it : it.skip;
    define(name, () => Trial.run(harness, maxWaiters === undefined ? {} : { maxWaiters }, body));
  };

  describe(harness.name, () => {
    it("the harness tells the truth about the store", () =>
      Trial.run(harness, {}, async (trial) => {
        assert.equal(trial.store.counts, counts, "counts");
        assert.equal((await trial.other()) !== trial.store, shared, "shared");
      }));
    for (const [name, theme] of themes) describe(name, () => theme(test));
  });
}
