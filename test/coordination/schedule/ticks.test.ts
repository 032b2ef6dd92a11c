import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Ticks } from "../../../src/coordination/schedule/ticks.ts";

const DAY_MS = 86_400_000;

/** Patterns of every kind, in time zones whose clocks go forward and back, by an hour and by half of one. */
const patterns = [
  "* * * * * *",
  "*/30 * * * *",
  "30 2 * * *",
  "15 1,2,3 * * *",
  "0 0 1 * *",
  "0 */2 * * SUN",
];
const timezones = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"];

describe("ticks", () => {
  test("are the same whoever asks, from whatever moment on, forward and back", () => {
    const moment = fc.integer({ min: Date.UTC(2029, 0, 1), max: Date.UTC(2031, 0, 1) });
    fc.assert(
      fc.property(
        fc.constantFrom(...patterns),
        fc.constantFrom(...timezones),
        moment,
        fc.integer({ min: 1, max: 40 }),
        fc.integer({ min: 0, max: 100 }),
        (pattern, timezone, fromMs, count, part) => {
          const ticks = new Ticks(pattern, timezone);
          const all = ticks.first(fromMs, fromMs + 400 * DAY_MS, count);
          const untilMs = all.at(-1) ?? fromMs;
          expect(ticks.last(fromMs, untilMs, count)).toEqual(all);
          expect(ticks.last(fromMs, untilMs, 1)).toEqual(all.slice(-1));
          const withinMs = fromMs + Math.floor(((untilMs - fromMs) * part) / 100);
          expect(ticks.first(withinMs, untilMs, count)).toEqual(all.filter((tickMs) => tickMs > withinMs));
          expect(all.every((tickMs) => tickMs > fromMs && tickMs % 1_000 === 0)).toBe(true);
        },
      ),
      { numRuns: 100 },
    );
  });

  test.each([
    ["2030-03-31", "just before the clocks go forward in Berlin"],
    ["2030-10-27", "just before they go back"],
  ])("are the same forward and back around %s, %s", (day) => {
    for (const pattern of patterns.slice(1)) {
      const ticks = new Ticks(pattern, "Europe/Berlin");
      const startMs = Date.parse(`${day}T00:00:00Z`);
      const all = ticks.first(startMs - DAY_MS, startMs + DAY_MS, 1_000);
      expect(ticks.last(startMs - DAY_MS, startMs + DAY_MS, 1_000)).toEqual(all);
      for (let minute = 0; minute < 240; minute += 7) {
        const fromMs = startMs + minute * 60_000;
        const expected = all.filter((tickMs) => tickMs > fromMs);
        expect(ticks.first(fromMs, startMs + DAY_MS, 1_000), `${pattern} from minute ${minute}`).toEqual(
          expected,
        );
      }
    }
  });
});
