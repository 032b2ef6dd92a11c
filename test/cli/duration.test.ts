import { describe, expect, test } from "vitest";
import { parseDuration, roughDuration, writeDuration } from "../../src/cli/duration.ts";

describe("durations", () => {
  test.each([
    ["0", 0],
    ["500ms", 500],
    ["30s", 30_000],
    ["1.5s", 1_500],
    ["1h30m", 5_400_000],
    ["1d", 86_400_000],
  ])("%s is %d ms", (text, ms) => {
    expect(parseDuration("--ttl", text)).toBe(ms);
    expect(parseDuration("--ttl", writeDuration(ms))).toBe(ms);
  });

  test.each(["", "30", "s", "30 s", "-1s", "1.5", "30sec", "0.5ms", "1s later", "30S"])(
    "%j is refused",
    (text) => {
      expect(() => parseDuration("--ttl", text)).toThrow(/--ttl must be/);
    },
  );

  test("a number without a unit is met with a guess", () => {
    expect(() => parseDuration("--ttl", "30")).toThrow("Did you mean 30s or 30ms?");
  });

  test.each([
    [0, "0ms"],
    [999, "999ms"],
    [1_234, "1.2s"],
    [59_999, "59.9s"],
    [3_725_000, "1h2m"],
  ])("%d ms are shown as %s", (ms, text) => expect(roughDuration(ms)).toBe(text));
});
