/** 200 histories; `npm run simulate -- --seeds N` for more, `-- --seed S` to read one. */
import { describe, expect, test } from "vitest";
import { runHistory } from "./history.ts";

const HISTORIES = 200;
const BATCH = 100;

describe("simulation", () => {
  for (let from = 1; from <= HISTORIES; from += BATCH) {
    test(`nothing goes wrong in histories ${from} to ${from + BATCH - 1}`, { timeout: 120_000 }, async () => {
      let grants = 0;
      for (let seed = from; seed < from + BATCH; seed++) {
        const outcome = await runHistory(seed);
        grants += outcome.grants;
        if (outcome.failure === undefined) continue;
        const { log } = await runHistory(seed, true);
        expect.fail(`seed ${seed}: ${outcome.failure}\n${log.join("\n")}`);
      }
      // Histories without grants prove nothing.
      expect(grants).toBeGreaterThan(5 * BATCH);
    });
  }

  test("the same seed gives the same history", async () => {
    const [first, second] = [await runHistory(4_711, true), await runHistory(4_711, true)];
    expect(first.steps).toBe(second.steps);
    expect(nameless(first.log)).toEqual(nameless(second.log));
  });
});

/** Ids are random, but stand for the same claims. */
function nameless(log: readonly string[]): string[] {
  return log.map((line) => line.replace(/(?<![\w-])[A-Za-z][\w-]{11}(?![\w-])/g, "id"));
}
