/**
 * `npm run mutants`: plants one bug after the other in a copy of the sources and shows who finds it, the test suite or
 * the simulation. Fails when a bug goes unnoticed by both. `-- --only WORD` takes those with the word in their name, and
 * `--once` leaves out the simulation of what the suite has found. Bugs in the script of the Redis store, whose names begin with "redis: ", are
 * planted there, and the differential test is to find them.
 */
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { scriptMutants } from "../stores/redis/script-mutants.ts";
import { type Mutant, mutants } from "./mutants.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const { values } = parseArgs({
  options: { only: { type: "string", default: "" }, once: { type: "boolean", default: false } },
});
const chosen = mutants.filter((mutant) => mutant.name.includes(values.only));

/** Enough to find what there is to find, and to be done in a few minutes. */
const HISTORIES = 1_500;
const HISTORIES_CAS = 300;

/** What a bug is in, and so whose tests it concerns. */
type Part = "core" | "cas" | "etcd" | "file" | "thread";

const suites: Readonly<Record<Part, readonly string[]>> = {
  core: ["test/core", "test/contract/memory.test.ts", "test/stores/memory"],
  cas: ["test/stores/cas"],
  // The others need a real etcd, and take their time.
  etcd: [
    ...["dead-claims", "doubts", "found-grant", "given-up"],
    ...["many-holders", "moved-claims", "restored", "sweeping"],
  ].map((name) => `test/stores/etcd/${name}.test.ts`),
  file: [
    ...["power-loss", "made-anew", "counted-commits", "settling", "full-disk"],
    ...["inbox", "disk-pace", "thread"],
  ].map((name) => `test/stores/file/${name}.test.ts`),
  // One of these is a simulation of its own.
  thread: ["test/thread/standby.test.ts", "test/thread/random-blocks.test.ts"],
};

const folder = mkdtempSync(join(tmpdir(), "holdfast-mutants-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
for (const name of [
  ".gitignore",
  "docs",
  "examples",
  "scripts",
  "src",
  "test",
  "package.json",
  "tsconfig.json",
  "vitest.config.ts",
]) {
  cpSync(join(root, name), join(folder, name), { recursive: true });
}
symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));

expectIntact();
const script = playScriptMutants();
const missed = [...chosen.filter((mutant) => !isCaught(mutant)).map(({ name }) => name), ...script.missed];
const count = chosen.length + script.count;
console.log(`\n${count} bugs planted, ${count - missed.length} caught, ${missed.length} missed`);
for (const name of missed) console.log(`missed: ${name}`);
process.exitCode = missed.length === 0 && count > 0 ? 0 : 1;

/** A test that fails anyway would catch every bug. */
function expectIntact(): void {
  const failures = (["core", "cas", "etcd", "file", "thread"] as const)
    .filter((part) => chosen.some((mutant) => partOf(mutant) === part))
    .map((part) => runSuite(part) ?? runSimulation(part))
    .filter((failure) => failure !== undefined);
  if (failures.length === 0) return;
  console.error(`Without any bug planted: ${failures.join(", ")}`);
  process.exit(1);
}

function partOf({ file, name }: Mutant): Part {
  // Some of what only etcd needs of casStore is tested with it.
  if (name.startsWith("etcd: ")) return "etcd";
  if (file.startsWith("src/stores/cas/")) return "cas";
  if (file.startsWith("src/stores/file/")) return "file";
  return name.startsWith("thread: ") ? "thread" : "core";
}

function isCaught(mutant: Mutant): boolean {
  const path = join(folder, mutant.file);
  const intact = readFileSync(path, "utf8");
  if (intact.split(mutant.find).length !== 2) {
    throw new Error(
      `"${mutant.name}" does not fit ${mutant.file} any more: its text must stand there exactly once.`,
    );
  }
  writeFileSync(
    path,
    intact.replace(mutant.find, () => mutant.replace),
  );
  const suite = runSuite(partOf(mutant));
  const isLeftOut = values.once && suite !== undefined;
  const simulation = isLeftOut ? undefined : runSimulation(partOf(mutant));
  writeFileSync(path, intact);
  console.log(`\n${suite === undefined && simulation === undefined ? "MISSED" : "caught"}  ${mutant.name}`);
  console.log(`        suite       ${suite ?? "–"}`);
  console.log(`        simulation  ${isLeftOut ? "left out" : (simulation ?? "–")}`);
  return suite !== undefined || simulation !== undefined;
}

/** Those in the script of the Redis store. Each is a test of its own, which fails where the bug goes unnoticed. */
function playScriptMutants(): { readonly count: number; readonly missed: readonly string[] } {
  const found = "redis: the differential test finds that ";
  const names = scriptMutants
    .map(({ name }) => `redis: ${name}`)
    .filter((name) => name.includes(values.only));
  if (names.length === 0) return { count: 0, missed: [] };
  const vitest = ["node_modules/vitest/vitest.mjs", "run", "test/stores/redis/script-mutants.test.ts"];
  const { stdout } = run([...vitest, "--reporter", "json"]);
  const passed = new Set(
    [...stdout.matchAll(/"fullName":"((?:[^"\\]|\\.)*)","status":"passed"/g)].map((match) => match[1]),
  );
  const missed = names.filter((name) => !passed.has(name.replace("redis: ", found)));
  return { count: names.length, missed };
}

/** The first test that fails, if one does. */
function runSuite(part: Part): string | undefined {
  const vitest = ["node_modules/vitest/vitest.mjs", "run"];
  const args = [...vitest, ...suites[part], "--bail", "1", "--reporter", "json"];
  const { status, stdout } = run(args, { RECORD_MODEL_RUNS: "300" });
  if (status === 0) return undefined;
  const report = stdout.slice(stdout.indexOf('{"numTotalTestSuites"'));
  const failed = /"fullName":"((?:[^"\\]|\\.)*)","status":"failed"/.exec(report)?.[1];
  return failed ?? `ended with ${status}`;
}

/** What went wrong in the first history that fails, if one does. */
function runSimulation(part: Part): string | undefined {
  if (part === "thread" || part === "file") return undefined;
  const [store, seeds] = part === "core" ? ["direct", HISTORIES] : [part, HISTORIES_CAS];
  const args = ["--import", "tsx", "test/simulation/command.ts", "--store", store, "--seeds", `${seeds}`];
  const { status, stdout } = run(args, {});
  if (status === 0) return undefined;
  return /^FAILED: (.*)$/m.exec(stdout)?.[1] ?? `ended with ${status}`;
}

function run(args: readonly string[], env: Record<string, string> = {}) {
  return spawnSync(process.execPath, args, {
    cwd: folder,
    encoding: "utf8",
    env: { ...process.env, ...env, NO_COLOR: "1" },
    maxBuffer: 1 << 28,
    // A bug may make a test spin; that counts as found, too.
    timeout: 180_000,
    killSignal: "SIGKILL",
  });
}
