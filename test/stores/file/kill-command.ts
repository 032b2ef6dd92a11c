/** `npm run kills -- [--rounds N]`: processes that use the file store are killed, 200 times unless told otherwise. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { killRounds } from "./kill-rounds.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "200" } } });
const folder = mkdtempSync(join(tmpdir(), "holdfast-kills-"));
const report = await killRounds({
  folder,
  rounds: Number(values.rounds),
  withinMs: Number.POSITIVE_INFINITY,
});
rmSync(folder, { recursive: true, force: true });
console.log(
  `${report.rounds} processes killed, ${report.heldWhenKilled} of them while they held the lock; ${report.grants} grants.`,
);
for (const fault of report.faults) console.error(fault);
process.exitCode = report.faults.length === 0 && report.rounds > 0 ? 0 : 1;
