/** Store and client together, with a network between them that loses, delays and repeats what they say. */
import assert from "node:assert/strict";
import type { Lease, Locks } from "../../client/index.ts";
import type { Clock } from "../../platform/index.ts";
import { HoldfastError } from "../../store/index.ts";
import { type Fault, type FaultPlan, faultyStore } from "../faulty-store.ts";
import { type DefineTest, expectGrowing, PAST_SHORT, SHORT, type Trial } from "./trial.ts";

export function clientNetwork(test: DefineTest): void {
  // A1, E10
  test("on an unreliable network nobody believes in a lock that another has, and all are served", async (trial) => {
    const key = trial.key();
    const network = { faulty: true };
    const entered: Lease[] = [];
    const work = async (locks: Locks) => {
      const lock = locks.mutex(key, { ttlMs: trial.ms(SHORT) });
      for (let served = 0; served < 3; ) {
        served += await lock.run((lease) => criticalSection(trial, entered, lease)).catch(expectOutage);
      }
    };
    const clients: Locks[] = [];
    for (const seed of [1, 2, 3]) {
      const store = faultyStore(await trial.other(), unreliable(trial, network, seed), {
        clock: trial.clock,
      });
      clients.push(trial.client(store, { requestTimeoutMs: trial.ms(SHORT * 2) }));
    }
    await trial.soon(trial.begin(Promise.all(clients.map(work))));
    expectGrowing(entered.map((lease) => lease.fence));

    network.faulty = false;
    // What a late copy of a request brought back has nobody to renew it.
    await trial.sleep(2 * PAST_SHORT);
    await trial.expectIdle(key);
  });
}

/** Counts as served only if the lease was held to the end. */
async function criticalSection(trial: Trial, entered: Lease[], lease: Lease): Promise<number> {
  for (const other of entered) assert.equal(other.held, false, "two leases are held at once");
  entered.push(lease);
  await pause(trial.clock, trial.ms(1));
  return lease.held ? 1 : 0;
}

function expectOutage(error: unknown): number {
  if (error instanceof HoldfastError && error.code === "STORE_UNAVAILABLE") return 0;
  throw error;
}

/** Every other message arrives as it should. Which ones do not is the same in every run. */
function unreliable(trial: Trial, network: { readonly faulty: boolean }, seed: number): FaultPlan {
  const faults: readonly Fault[] = [
    { lose: "request" },
    { lose: "reply" },
    { lose: "request", hang: true },
    { lose: "reply", hang: true },
    { beforeMs: trial.ms(3) },
    { afterMs: trial.ms(3) },
    { repeatAfterMs: trial.ms(2) },
  ];
  let state = seed;
  return () => {
    // The minimal standard generator.
    state = (state * 48_271) % 2_147_483_647;
    return network.faulty ? faults[(state >> 8) % (2 * faults.length)] : undefined;
  };
}

function pause(clock: Clock, ms: number): Promise<void> {
  return new Promise((resolve) => {
    clock.setTimer(ms, resolve).keepAlive(true);
  });
}
