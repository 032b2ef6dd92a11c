/**
 * Sources, and programs and examples that tests start as processes of their own, compiled once for all tests to .tests/: to start one through tsx costs a
 * second of the processor more.
 */
import { type ChildProcess, execFileSync, type ForkOptions, fork } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { modifiedMs, newestMs } from "../scripts/source-age.js";
import { root } from "./source-tree.ts";

const folder = join(root, ".tests");

/** Compiles if a source is newer than the output. Vitest calls it before all tests, and each command before its work. */
export function compilePrograms(): void {
  const sources = ["src", "test", "examples", "tsconfig.json", "package.json"];
  const changedMs = Math.max(...sources.map((source) => newestMs(join(root, source))));
  const done = join(folder, "package.json");
  if (modifiedMs(done) > changedMs) return;
  // The output of a removed source must not be tested.
  rmSync(folder, { recursive: true, force: true });
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  execFileSync(process.execPath, [compiler, "-p", "test/tsconfig.json"], { cwd: root, stdio: "inherit" });
  mkdirSync(folder, { recursive: true });
  // Written last. There, "holdfast" is what was compiled beside it, and not what was built.
  writeFileSync(done, ownPackage());
}

/** The compiled form of a program. */
export function compiled(source: URL): string {
  const path = fileURLToPath(source);
  const program = compiledForm(path);
  if (!existsSync(program)) throw new Error(`${program} is missing: is ${path} below test?`);
  return program;
}

/** Where the compiled form of a source or a test is. */
export function compiledForm(path: string): string {
  const form = path.startsWith(folder) ? path : join(folder, relative(root, path));
  return form.replace(/\.ts$/, ".js");
}

/** Starts a program that talks to this process. It has none of the arguments that this one was given for itself. */
export function forkProgram(
  source: URL,
  args: readonly string[] = [],
  options: ForkOptions = {},
): ChildProcess {
  return fork(compiled(source), args, { execArgv: [], ...options });
}

function ownPackage(): string {
  const { name, version, type, exports } = JSON.parse(
    readFileSync(join(root, "package.json"), "utf8"),
  ) as Record<string, unknown>;
  return JSON.stringify({ name, version, type, exports }).replaceAll('"./dist/', '"./src/');
}
