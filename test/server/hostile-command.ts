/** `npm run hostile -- [--count 100000] [--seed 1]`: attacks a server with that many hostile messages, and tells what came of it. */
import { parseArgs } from "node:util";
import { compilePrograms } from "../programs.ts";
import { attack } from "./hostile.ts";

compilePrograms();

const { values } = parseArgs({
  options: { count: { type: "string", default: "100000" }, seed: { type: "string", default: "1" } },
});
const report = await attack(Number(values.count), Number(values.seed), (text) => console.error(text));
console.log(JSON.stringify(report, null, 2));
process.exit(report.honest.failures === 0 ? 0 : 1);
