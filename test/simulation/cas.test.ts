/** 500 histories over compare-and-swap stores in every test run; `npm run simulate -- --store cas --seeds N` for more. */
import { describe, expect, test } from "vitest";
import { runHistory } from "./history.ts";

const HISTORIES = 500;
const BATCH = 125;

describe("simulation of compare-and-swap stores", () => {
  for (let from = 1; from <= HISTORIES; from += BATCH) {
    test(`nothing goes wrong in histories ${from} to ${from + BATCH - 1}`, { timeout: 120_000 }, async () => {
      let grants = 0;
      for (let seed = from; seed < from + BATCH; seed++) {
        const outcome = await runHistory(seed, false, "cas");
        grants += outcome.grants;
        if (outcome.failure === undefined) continue;
        const { log } = await runHistory(seed, true, "cas");
        expect.fail(`seed ${seed}: ${outcome.failure}\n${log.join("\n")}`);
      }
      // A history in which nobody gets anything proves nothing.
      expect(grants).toBeGreaterThan(5 * BATCH);
    });
  }
});
