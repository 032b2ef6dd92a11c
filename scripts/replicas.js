/** `npm run replicas`: replicas that contend for one job, on this machine. Installs and builds first where that is needed. */
import { build, checkNode, env, install, runNode } from "./steps.js";

checkNode();
if (!(await install()) || !(await build())) process.exit(1);

// The examples have a tsconfig of their own, so that "holdfast" is the built package and not the sources.
const options = { env: { ...env, TSX_TSCONFIG_PATH: "examples/tsconfig.json" } };
process.exit(await runNode(["--import", "tsx", "examples/replicas/main.ts"], options));
