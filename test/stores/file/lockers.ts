/** Processes that lock and write until they are killed: locker-process.ts. */
import { type ChildProcess, execFile } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { fileDriver } from "../../../src/stores/file/file-driver.ts";
import { root } from "../../source-tree.ts";

/** Compiles the program once: tsx would cost every process a second of the processor, and processes are what is counted here. */
export async function compileLocker(folder: string): Promise<string> {
  const source = join("test", "stores", "file", "locker-process.ts");
  // Nobody imports what runs in the thread.
  const thread = join("src", "stores", "file", "disk-thread.js");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  const settings = ["--ignoreConfig", "--noCheck", "--module", "nodenext", "--target", "es2023", "--allowJs"];
  const places = ["--rewriteRelativeImportExtensions", "--rootDir", root, "--outDir", folder];
  const args = [compiler, ...settings, ...places, join(root, source), join(root, thread)];
  await promisify(execFile)(process.execPath, args);
  return join(folder, source.replace(/\.ts$/, ".js"));
}

export async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

/** All records, after something else has been done while the folder was open. */
export async function recordsIn(data: string, before = async () => {}): Promise<unknown> {
  const driver = fileDriver(data);
  try {
    await driver.read([]);
    await before();
    return (await driver.list("", undefined, 100_000)).records;
  } finally {
    await driver.close?.();
  }
}
