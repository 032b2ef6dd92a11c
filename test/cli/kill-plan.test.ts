import { describe, expect, test } from "vitest";
import { planKill } from "../../src/cli/kill-plan.ts";

describe("the timetable of a command whose lease ends", () => {
  test.each([
    [30_000, 10_000, 1_000],
    [60_000, 10_000, 1_000],
    [9_000, 3_000, 450],
    [3_000, 1_000, 250],
    [1_000, 250, 250],
    [500, 0, 250],
  ])(
    "with a ttl of %d ms, SIGKILL comes %d ms after SIGTERM and %d ms before the end",
    (ttlMs, killAfterMs, marginMs) => {
      expect(planKill({ ttlMs })).toEqual({ ttlMs, killAfterMs, marginMs });
    },
  );

  test("never begins before a heartbeat was due and could be repeated", () => {
    for (let ttlMs = 500; ttlMs <= 86_400_000; ttlMs = Math.ceil(ttlMs * 1.1)) {
      const { killAfterMs, marginMs } = planKill({ ttlMs });
      expect(ttlMs - killAfterMs - marginMs).toBeGreaterThanOrEqual(ttlMs / 2);
      expect(marginMs).toBeGreaterThanOrEqual(250);
    }
  });

  test("refuses a ttl that is too short for what was asked, and says which one would do", () => {
    const options = { ttlMs: 10_000, killAfterMs: 5_000 };
    expect(() => planKill(options)).toThrow("--ttl 10s is too short");
    expect(() => planKill({ ...options, ttlMs: 10_999 })).toThrow();
    expect(planKill({ ...options, ttlMs: 11_200 }).killAfterMs).toBe(5_000);
    expect(() => planKill({ ttlMs: 499 })).toThrow("too short");
    expect(() => planKill({ ttlMs: 30_000, marginMs: 0 })).toThrow("--margin");
  });
});
