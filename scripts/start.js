/**
 * `npm start`: a lock server on files in .holdfast/, and what to try with it. Installs and builds first where that is needed.
 *
 * Options are those of `holdfast serve`: `npm start -- --port 7421`.
 */
import { join } from "node:path";
import { build, checkNode, install, root, runNode } from "./steps.js";

checkNode();
if (!(await install()) || !(await build())) process.exit(1);

// What somebody says comes later, and so wins over this. Where locks are kept can be said in one way only.
const args = process.argv.slice(2);
const place = args.some((arg) => /^--(data|store|memory|config)\b/.test(arg))
  ? []
  : ["--data", join(root, ".holdfast")];
process.exit(
  await runNode(["dist/cli/main.js", "serve", "--welcome", "--log-level", "warn", ...place, ...args]),
);
