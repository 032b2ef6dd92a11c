/**
 * 300 histories over compare-and-swap stores in every test run, every third of them over etcd;
 * `npm run simulate -- --store cas --seeds N` for more, and `--store etcd` for those with leases alone.
 */
import { describe, expect, test } from "vitest";
import type { Met } from "./etcd-cluster.ts";
import { runHistory } from "./history.ts";

const HISTORIES = 300;
const BATCH = 100;

/** What all histories over etcd have met. */
const met = new Map<keyof Met, number>();
/** How often they must have, or they prove nothing about leases. */
const leastMet: Met = {
  deaths: 6,
  silences: 60,
  lateSigns: 120,
  lateAnswers: 120,
  formerSigns: 120,
  conflicts: 6,
  refusals: 60,
};

const kinds = Object.keys(leastMet) as (keyof Met)[];

describe("simulation of compare-and-swap stores", () => {
  for (let from = 1; from <= HISTORIES; from += BATCH) {
    test(`nothing goes wrong in histories ${from} to ${from + BATCH - 1}`, { timeout: 120_000 }, async () => {
      let grants = 0;
      for (let seed = from; seed < from + BATCH; seed++) {
        const outcome = await runHistory(seed, false, "cas");
        grants += outcome.grants;
        for (const what of kinds) met.set(what, (met.get(what) ?? 0) + (outcome.met?.[what] ?? 0));
        if (outcome.failure === undefined) continue;
        const { log } = await runHistory(seed, true, "cas");
        expect.fail(`seed ${seed}: ${outcome.failure}\n${log.join("\n")}`);
      }
      // A history in which nobody gets anything proves nothing.
      expect(grants).toBeGreaterThan(5 * BATCH);
    });
  }

  test("they have met what leases of etcd are to be played for", () => {
    for (const what of kinds) expect.soft(met.get(what), what).toBeGreaterThan(leastMet[what]);
  });
});
