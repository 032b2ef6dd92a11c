import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, onTestFinished, test } from "vitest";
import { alternate } from "../bench/rounds.ts";
import { ratioOf, spreadOf } from "../bench/statistics.ts";
import { root } from "./source-tree.ts";

function bench(...args: string[]) {
  return promisify(execFile)(process.execPath, ["scripts/bench.js", ...args], { cwd: root });
}

describe("the bench command", () => {
  test("writes a report with every row of the memory suite", async () => {
    const out = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
    onTestFinished(() => rmSync(out, { recursive: true, force: true }));
    await bench("memory", "--quick", "--out", out);
    const report = readFileSync(join(out, "memory.md"), "utf8");
    const rows = report.split("\n").filter((line) => line.startsWith("| "));
    const [header = "", , ...measured] = rows.map((row) => row.split("|").map((cell) => cell.trim()));
    expect(header.slice(1, 4)).toEqual(["What", "Holdfast", "Compared with"]);
    expect(measured.map(([, what = ""]) => what.replace(/\d[\d.,]*\d|\d/g, "n"))).toEqual([
      "uncontended acquire and release",
      "acquire and release, n callers on one key",
      "acquire and release of a fixed key, n keys held",
      "acquire and release of fresh keys, n keys held",
      "fixed key, larger young generation, n keys held",
      "fresh keys, larger young generation, n keys held",
      "memory of a held lease, n held",
      "n leases renewing, ttl n s: processor, as a fraction of one core",
      "n leases renewing, ttl n s: longest delay of the event loop",
    ]);
    for (const [, what, figure] of measured) expect(figure, what).toMatch(/\d/);
  }, 120_000);

  test("says which suites there are when it is asked for another", async () => {
    await expect(bench("nonesuch")).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining('There is no suite "nonesuch". There is: memory.'),
    });
  }, 60_000);
});

describe("statistics", () => {
  test("the median of an even number of values lies between the middle two", () => {
    expect(spreadOf([4, 1, 3, 2])).toEqual({ median: 2.5, min: 1, max: 4 });
    expect(spreadOf([9, 1, 5])).toEqual({ median: 5, min: 1, max: 9 });
  });

  test("a ratio is one of neighbours, not of totals", () => {
    expect(ratioOf([10, 1, 10], [10, 2, 10])).toEqual({ median: 1, min: 0.5, max: 1 });
  });

  test("rounds alternate, and the warm-up does not count", async () => {
    const order: string[] = [];
    const pair = await alternate(
      async () => order.push("ours"),
      async () => order.push("theirs"),
      2,
    );
    expect(order.every((who, index) => who === (index % 2 === 0 ? "ours" : "theirs"))).toBe(true);
    expect(pair.ours).toEqual([order.length - 3, order.length - 1]);
    expect(pair.theirs).toEqual([order.length - 2, order.length]);
  });
});
