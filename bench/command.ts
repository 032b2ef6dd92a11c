/**
 * `npm run bench -- <suite> [--quick] [--check] [--out <folder>]`: measures, and writes `<folder>/<suite>.md` with its plots.
 *
 * `--quick` takes seconds, for trying out the suite itself; its report is only printed unless there is an `--out`.
 * `--check` exits with 1 when a target is missed.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { instrumentationSuite } from "./instrumentation/suite.ts";
import { memorySuite } from "./memory/suite.ts";
import { redisSuite } from "./redis/suite.ts";
import { isMet, markdownOf, plotFile } from "./report.ts";
import { serverSuite } from "./server/suite.ts";
import { storesSuite } from "./stores/suite.ts";
import type { Suite } from "./suite.ts";

const suites: readonly Suite[] = [instrumentationSuite, memorySuite, redisSuite, serverSuite, storesSuite];
const resultsFolder = fileURLToPath(new URL("results", import.meta.url));

const { suite, quick, check, out } = readArguments();
const report = await suite.run({ quick, progress: (text) => console.error(text) });
const markdown = markdownOf(report, suite.name, `npm run bench -- ${suite.name}${quick ? " --quick" : ""}`);
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
  const suite = suites.find(({ name }) => name === positionals[0]);
  if (suite === undefined || positionals.length > 1) {
    const asked =
      positionals.length === 0 ? "No suite was named" : `There is no suite "${positionals.join(" ")}"`;
    fail(`${asked}. There is: ${suites.map(({ name }) => name).join(", ")}.`);
  }
  return { ...values, suite, out: values.out ?? (values.quick ? undefined : resultsFolder) };
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
