import fc from "fast-check";
import { expect, test } from "vitest";
import { earliest, hasCome, noLaterThan, noSoonerThan } from "../../src/platform/deadline.ts";

const moment = fc.double({ min: 0, max: 1e12, noNaN: true });

test("deadline: whole milliseconds, on the safe side", () => {
  fc.assert(
    fc.property(moment, (ms) => {
      const before = noLaterThan(ms)!;
      const after = noSoonerThan(ms)!;
      expect([before, after].every(Number.isInteger)).toBe(true);
      expect(before <= ms && ms - before <= 1).toBe(true);
      expect(after >= ms && after - ms <= 1).toBe(true);
    }),
  );
});

test("deadline: one that is never has not come, and anything else is earlier", () => {
  expect([noLaterThan(Number.POSITIVE_INFINITY), noSoonerThan(Number.POSITIVE_INFINITY)]).toEqual([
    undefined,
    undefined,
  ]);
  expect(hasCome(undefined, 1e12)).toBe(false);
  expect([hasCome(5, 4.9), hasCome(5, 5)]).toEqual([false, true]);
  expect([earliest(undefined, 5), earliest(5, undefined), earliest(7, 5)]).toEqual([5, 5, 5]);
  expect(earliest(undefined, undefined)).toBeUndefined();
});
