/** `npm run bench -- <suite>`: measures the built package. Installs, builds and compiles the bench first where that is needed. */
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { modifiedMs, newestMs } from "./source-age.js";
import { build, checkNode, install, root, runNode, runTool, step } from "./steps.js";

checkNode();
if (!(await install()) || !(await build()) || !(await compileBench())) process.exit(1);
process.exit(await runNode(["--expose-gc", ".bench/bench/command.js", ...process.argv.slice(2)]));

/**
 * Compiles to .bench/ what is newer than what is there. A suite starts up to thirty processes, and each would spend a second on
 * compiling: in a package of this name, so that "holdfast" is the built one, and without the names that tsx makes functions
 * keep, which makes closures slow.
 */
async function compileBench() {
  const compiled = join(root, ".bench");
  const sources = ["bench", "src", "test/engines", "test/stores/etcd", "tsconfig.json"];
  const changedMs = Math.max(...sources.map((source) => newestMs(join(root, source))));
  if (modifiedMs(join(compiled, "bench", "command.js")) > changedMs) return true;
  return step("compile the bench (tsc)", async () => {
    rmSync(compiled, { recursive: true, force: true });
    const code = await runTool("typescript", "bin/tsc", ["-p", "bench/tsconfig.json"]);
    // What stands in for MongoDB is no TypeScript.
    const standIn = join("test", "engines", "mongo-java-server");
    cpSync(join(root, standIn), join(compiled, standIn), { recursive: true });
    if (code !== 0) rmSync(compiled, { recursive: true, force: true });
    return code;
  });
}
