/** `SCHEDULE_HISTORIES=500 npx vitest run test/schedules/histories.test.ts` plays more histories. */
import { describe, expect, test } from "vitest";
import { runScheduleHistory } from "./histories.ts";

const HISTORIES = Number(process.env["SCHEDULE_HISTORIES"] ?? 8);

describe("histories of a schedule, with clocks that differ and replicas that die", () => {
  test.each([
    ["without taking over, no tick runs twice, and each runs unless its runner died", false],
    ["taking over, each tick is completed, with growing fences", true],
  ])("%s", { timeout: 60_000 + HISTORIES * 1_000 }, async (_, takeover) => {
    const sum = { runs: 0, crashes: 0, cutShort: 0, repeated: 0 };
    for (let seed = 1; seed <= HISTORIES; seed++) {
      const { faults, ...counts } = await runScheduleHistory(seed, takeover);
      expect(faults, `seed ${seed}`).toEqual([]);
      for (const name of ["runs", "crashes", "cutShort", "repeated"] as const) sum[name] += counts[name];
    }
    // Histories without runs and deaths prove nothing.
    expect(sum.runs).toBeGreaterThan(20 * HISTORIES);
    expect(sum.crashes).toBeGreaterThan(2 * HISTORIES);
    expect(takeover ? sum.repeated : sum.crashes - sum.cutShort).toBeGreaterThan(0);
  });
});
