/**
 * Runs once, before all test files. Compiles the sources and the programs of tests, and builds the package for the tests of the
 * command and of the examples. Their files run side by side, so none of them may build while another uses the package.
 */
import { spawnSync } from "node:child_process";
import { compilePrograms } from "./programs.ts";
import { root } from "./source-tree.ts";

export function setup(): void {
  compilePrograms();
  // After a failed build these tests fail for the lack of dist/; the others still run.
  spawnSync(process.execPath, ["scripts/build.js"], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
}
