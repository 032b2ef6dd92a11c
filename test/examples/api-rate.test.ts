import { describe, expect, test } from "vitest";
import { runExample } from "./example.ts";

const summary = /at most (\d+) calls open at a time, served (\d+) and refused (\d+)/;

describe("the api-rate example", { timeout: 60_000 }, () => {
  test("all processes together stay within the limit, and all calls are made though one worker is killed", async () => {
    const { output, code } = await runExample("api-rate");
    expect(code, output).toBe(0);
    const [, most, served, refused] = summary.exec(output) ?? [];
    // A limit that is never reached would show nothing.
    expect(most, output).toBe("3");
    expect(Number(served), output).toBeGreaterThanOrEqual(2 * 8);
    expect(refused, output).toBe("0");
  });
});
