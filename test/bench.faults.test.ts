/** Each suite of the bench, at its smallest. */
import { execFile } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { canRunRedis } from "./engines/redis.ts";
import { root } from "./source-tree.ts";

function bench(...args: string[]) {
  return promisify(execFile)(process.execPath, ["scripts/bench.js", ...args], { cwd: root });
}

/** The least number of rows of a suite, and rows that prove more than a figure. */
const suites: readonly (readonly [name: string, rows: number, proofs: readonly RegExp[]])[] = [
  ["memory", 8, []],
  ["redis", 15, [/renews each once \| \d+ \| redis-semaphore: [1-9]/]],
  ["stores", 15, []],
  [
    "server",
    6,
    [
      /not served in the order in which they came \| 0 \|/,
      /clients, a lease each, ttl [\d.]+ s: leases lost \| 0 \|/,
    ],
  ],
  ["instrumentation", 5, []],
];

test.each(suites)(
  "the %s suite writes a report with a figure in each row",
  async (suite, least, proofs) => {
    if (suite === "redis" && !canRunRedis()) return;
    const out = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
    onTestFinished(() => rmSync(out, { recursive: true, force: true }));
    await bench(suite, "--quick", "--out", out);
    const report = readFileSync(join(out, `${suite}.md`), "utf8");
    const rows = report.split("\n").filter((line) => line.startsWith("| "));
    const [header = [], , ...measured] = rows.map((line) => line.split("|").map((cell) => cell.trim()));
    expect(header.slice(1, 4)).toEqual(["What", "Holdfast", "Compared with"]);
    for (const [, what, figure] of measured) expect(figure, what).toMatch(/\d/);
    expect(measured.length).toBeGreaterThanOrEqual(least);
    for (const proof of proofs) expect(report).toMatch(proof);
    expect(report).not.toContain("NaN");
    for (const plot of ["redis-throughput.svg", "redis-waits.svg"]) {
      if (suite === "redis") expect(existsSync(join(out, plot))).toBe(true);
    }
  },
  180_000,
);

test("the bench names its suites when it is asked for another", async () => {
  await expect(bench("nonesuch")).rejects.toMatchObject({
    code: 2,
    stderr: expect.stringContaining('There is no suite "nonesuch". There is: crowd, instrumentation, memory'),
  });
}, 60_000);
