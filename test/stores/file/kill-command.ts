/** `npm run kills -- [--rounds N]`: processes that use the file store are killed, 200 times unless told otherwise. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { killRounds } from "./kill-rounds.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "200" } } });
const folder = mkdtempSync(join(tmpdir(), "holdfast-kills-"));
const kills = Number(values.rounds);
const report = await killRounds({ folder, kills, held: Math.ceil(kills / 10) });
rmSync(folder, { recursive: true, force: true });
console.log(
  `${report.kills} processes killed, with ${report.heldWhenKilled} leases that they held; ${report.grants} grants.`,
);
for (const fault of report.faults) console.error(fault);
process.exitCode = report.faults.length === 0 && report.kills >= kills ? 0 : 1;
