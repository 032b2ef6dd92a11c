/** `npm run bench -- <suite>`: measures the built package. Installs and builds first where that is needed. */
import { build, checkNode, env, install, runNode } from "./steps.js";

checkNode();
if (!(await install()) || !(await build())) process.exit(1);

// The benchmarks have a tsconfig of their own, so that "holdfast" is the built package. tsx would compile the sources
// so that every function keeps its name, which makes closures slow.
const options = { env: { ...env, TSX_TSCONFIG_PATH: "bench/tsconfig.json" } };
const args = ["--expose-gc", "--import", "tsx", "bench/command.ts", ...process.argv.slice(2)];
process.exit(await runNode(args, options));
