/**
 * 150 histories over compare-and-swap stores, every third of them over etcd;
 * `npm run simulate -- --store cas --seeds N` for more, and `--store etcd` for those with leases alone.
 */
import { describe, expect, test } from "vitest";
import type { Met } from "./etcd-cluster.ts";
import { runHistory } from "./history.ts";

const HISTORIES = 150;
const BATCH = 50;

/** The events of all histories over etcd. */
const met = new Map<keyof Met, number>();
/** The least counts with which the histories prove something about leases. */
const leastMet: Met = {
  deaths: 3,
  silences: 30,
  lateSigns: 60,
  lateAnswers: 60,
  formerSigns: 60,
  conflicts: 3,
  refusals: 30,
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
      // Histories without grants prove nothing.
      expect(grants).toBeGreaterThan(5 * BATCH);
    });
  }

  test("the histories have met every event of a lease of etcd", () => {
    for (const what of kinds) expect.soft(met.get(what), what).toBeGreaterThan(leastMet[what]);
  });
});
