/** `npm run hostile -- [--count 200000] [--seed 1]`: attacks a server, and prints its answers and what it keeps. */
import { parseArgs } from "node:util";
import { compilePrograms } from "../programs.ts";
import { attack, isSame } from "./hostile.ts";

compilePrograms();

const { values } = parseArgs({
  options: { count: { type: "string", default: "200000" }, seed: { type: "string", default: "1" } },
});
const report = await attack(Number(values.count), Number(values.seed), (text) => console.error(text));
console.log(JSON.stringify(report, null, 2));
const { before, after, honest, serverErrors } = report;
const isWell = isSame(before, after) && honest.failures === 0 && serverErrors === 0;
process.exit(isWell ? 0 : 1);
