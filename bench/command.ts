/**
 * `npm run bench -- <suite> [--quick] [--check] [--out <folder>]`: measures, and writes `<folder>/<suite>.md` with its plots.
 *
 * `--quick` takes seconds, for trying out the suite itself; its report is only printed unless there is an `--out`.
 * `--check` exits with 1 when a target is missed.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { watchHost } from "./host.ts";
import { isMet, markdownOf, plotFile } from "./report.ts";
import type { Suite } from "./suite.ts";

/** Each is loaded when it is asked for, with the libraries that it compares. */
const suites: Readonly<Record<string, () => Promise<Suite>>> = {
  crowd: async () => (await import("./crowd/suite.ts")).crowdSuite,
  instrumentation: async () => (await import("./instrumentation/suite.ts")).instrumentationSuite,
  memory: async () => (await import("./memory/suite.ts")).memorySuite,
  redis: async () => (await import("./redis/suite.ts")).redisSuite,
  server: async () => (await import("./server/suite.ts")).serverSuite,
  stores: async () => (await import("./stores/suite.ts")).storesSuite,
};
/** In the repository, where scripts/bench.js has us run. */
const resultsFolder = join("bench", "results");

const { load, quick, check, out } = readArguments();
const suite = await load();
const taken = watchHost();
const report = await suite.run({ quick, progress: (text) => console.error(text) });
const command = `npm run bench -- ${suite.name}${quick ? " --quick" : ""}`;
const markdown = markdownOf(report, suite.name, command, taken());
console.log(`\n${markdown}`);
if (out !== undefined) {
  mkdirSync(out, { recursive: true });
  writeFileSync(join(out, `${suite.name}.md`), markdown);
  for (const plot of report.plots ?? []) writeFileSync(join(out, plotFile(suite.name, plot)), plot.svg);
}

const missed = report.rows.filter((row) => isMet(row) === false).map((row) => row.what);
console.log(missed.length === 0 ? "All targets are met." : `Missed: ${missed.join("; ")}.`);
process.exit(check && missed.length > 0 ? 1 : 0);

function readArguments() {
  const { values, positionals } = parse();
  const load = suites[positionals[0] ?? ""];
  if (load === undefined || positionals.length > 1) {
    const asked =
      positionals.length === 0 ? "No suite was named" : `There is no suite "${positionals.join(" ")}"`;
    fail(`${asked}. There is: ${Object.keys(suites).join(", ")}.`);
  }
  return { ...values, load, out: values.out ?? (values.quick ? undefined : resultsFolder) };
}

function parse() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        quick: { type: "boolean", default: false },
        check: { type: "boolean", default: false },
        out: { type: "string" },
      },
    });
  } catch (error) {
    return fail((error as Error).message);
  }
}

function fail(message: string): never {
  console.error(message);
  process.exit(2);
}
