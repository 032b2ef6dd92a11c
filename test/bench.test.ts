import { execFile, spawnSync } from "node:child_process";
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

/** Runs a suite at its smallest. Resolves to what its rows are about, without the numbers in that, and where its files are. */
async function quickReport(suite: string): Promise<{ rows: string[]; report: string; out: string }> {
  const out = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  await bench(suite, "--quick", "--out", out);
  const report = readFileSync(join(out, `${suite}.md`), "utf8");
  const lines = report.split("\n").filter((line) => line.startsWith("| "));
  const [header = [], , ...measured] = lines.map((line) => line.split("|").map((cell) => cell.trim()));
  expect(header.slice(1, 4)).toEqual(["What", "Holdfast", "Compared with"]);
  for (const [, what, figure] of measured) expect(figure, what).toMatch(/\d/);
  const rows = measured.map(([, what = ""]) =>
    what.replace(/\d[\d.,]*\d(th)?|\d/g, (number) => (number.endsWith("th") ? "nth" : "n")),
  );
  return { rows, report, out };
}

const skipsRedis = spawnSync("redis-server", ["--version"]).error !== undefined && !process.env["CI"];
if (skipsRedis) console.warn("SKIPPED: the bench of the redis suite, because redis-server is not installed.");

describe("the bench command", () => {
  test("writes a report with every row of the memory suite", async () => {
    const { rows } = await quickReport("memory");
    expect(rows).toEqual([
      "uncontended acquire and release",
      "acquire and release, n callers on one key",
      "the store alone, fixed key, n keys held",
      "the store alone, fresh keys, n keys held",
      "acquire and release of a fixed key, n keys held",
      "acquire and release of fresh keys, n keys held",
      "fixed key, larger young generation, n keys held",
      "fresh keys, larger young generation, n keys held",
      "memory of a held lease, n held",
      "n leases renewing, ttl n s: processor, as a fraction of one core",
      "n leases renewing, ttl n s: longest delay of the event loop",
    ]);
  }, 120_000);

  test.skipIf(skipsRedis)(
    "writes a report with every row of the redis suite, and its plots",
    async () => {
      const { rows, report, out } = await quickReport("redis");
      const many = "acquire and release, n callers on keys of their own";
      const hot = "one key, n processes × n waiters, held n ms";
      const inCrowd = (verb: string, crowd: string) =>
        `${verb}, n other ${crowd} on the key: time of the server`;
      expect(rows).toEqual([
        "acquire and release, one caller, ioredis",
        "acquire and release, one caller, node-redis",
        "acquire and release, one caller, a network of n ms there and back, ioredis",
        "acquire and release, one caller, a network of n ms there and back, node-redis",
        `${many}: by the best peer`,
        `${many}: nth percentile`,
        `${many}: by raw ioredis`,
        `${many}: by node-redlock`,
        `${many}: by redis-semaphore`,
        `${many}: by verrou`,
        `${many}, node-redis: by the best peer`,
        `${many}, node-redis: by raw node-redis`,
        `${hot}: workers served`,
        `${hot}: most by least served`,
        `${hot}: longest wait, by a fair queue's`,
        `${hot}: commands per handoff`,
        "n waiters on one held key: all commands a second",
        "n held leases, ttl n s: commands in the n s in which redis-semaphore renews each once",
        ...["waiters", "readers"].flatMap((crowd) =>
          ["acquire", "renew", "release"].map((verb) => inCrowd(verb, crowd)),
        ),
      ]);
      expect(report).toMatch(/renews each once \| \d+ \| redis-semaphore: [1-9]/);
      for (const plot of ["redis-throughput.svg", "redis-waits.svg"]) {
        const svg = readFileSync(join(out, plot), "utf8");
        expect(svg).toMatch(/^<svg .*<polyline .*<\/svg>\n$/s);
        expect(svg).not.toContain("NaN");
      }
    },
    180_000,
  );

  test("the stores suite measures every store that can run here", async () => {
    const { stdout } = await bench("stores", "--quick");
    for (const name of ["file", "PostgreSQL", "MariaDB", "MongoDB", "etcd"]) {
      expect(stdout).toMatch(new RegExp(`^\\| ${name}: acquire and release`, "m"));
      const trips = name === "file" ? "commits" : "round trips";
      expect(stdout).toMatch(
        new RegExp(
          `^\\| ${name}: ${trips} of an uncontended acquire, and of a release \\| \\d\\.\\d\\d and \\d\\.\\d\\d `,
          "m",
        ),
      );
      expect(stdout).toMatch(new RegExp(`^\\| ${name}: one key, .*: most by least served`, "m"));
      const waits = "longest wait \\| [\\d.,]+ ms \\| a fair queue's: [\\d.,]+ ms";
      expect(stdout).toMatch(new RegExp(`^\\| ${name}: one key, .*: ${waits} \\|`, "m"));
    }
    expect(stdout).toMatch(
      /^\| PostgreSQL: \d+ locks held at once over a pool of 5 as it comes: connections, with the one that listens \| [1-5] \|/m,
    );
    expect(stdout).not.toContain("NaN");
  }, 180_000);

  test("the server suite measures sessions and calls side by side", async () => {
    const { stdout } = await bench("server", "--quick");
    for (const other of ["unary gRPC by grpc-js", "unary gRPC by Connect"])
      expect(stdout).toContain(`by ${other} |`);
    expect(stdout).toMatch(/99th percentile \| [\d.]+ ms/);
    expect(stdout).toMatch(/not served in the order in which they came \| 0 \|/);
    expect(stdout).toMatch(/clients, a lease each, ttl [\d.]+ s: leases lost \| 0 \|/);
    expect(stdout).toMatch(/processor time of a cycle, \d+ callers: the server \| [\d.]+ µs/);
    expect(stdout).not.toContain("NaN");
  }, 180_000);

  test("the instrumentation suite measures every listener beside none", async () => {
    const { rows } = await quickReport("instrumentation");
    const who = ["nobody", "a listener to grants, releases and losses", "prometheusMetrics"].concat(
      ["without an SDK", "metrics of the SDK", "spans of the SDK"].map((how, nth) =>
        nth === 0 ? `otelInstrumentation ${how}` : `otelInstrumentation, ${how}`,
      ),
    );
    expect(rows).toEqual(who.map((name) => `acquire and release, ${name} listens`));
  }, 60_000);

  test("says which suites there are when it is asked for another", async () => {
    await expect(bench("nonesuch")).rejects.toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'There is no suite "nonesuch". There is: crowd, instrumentation, memory, redis, server, stores.',
      ),
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
