import { describe, expect, test } from "vitest";
import { runExample } from "./example.ts";

const summary = /(\d+) pages were served, (\d+) of them torn/;

describe("the cache-rebuild example", { timeout: 60_000 }, () => {
  test("each change is rebuilt once, and no page is read while it is written", async () => {
    const { output, code } = await runExample("cache-rebuild");
    expect(code, output).toBe(0);
    expect(output).toContain("Rebuilt to version 2, then 3: once for each change.");
    const [, pages, torn] = summary.exec(output) ?? [];
    expect(Number(pages), output).toBeGreaterThanOrEqual(120);
    expect(torn, output).toBe("0");
  });
});
