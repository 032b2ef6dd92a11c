/**
 * `npm run kills -- [--rounds N]`: processes that use the file store are killed, in 200 rounds unless told otherwise. In half of the rounds
 * others go on; in the other half, all that have the folder open are killed.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { compilePrograms } from "../../programs.ts";
import { killRounds } from "./kill-rounds.ts";
import { loneRounds } from "./lone-rounds.ts";

compilePrograms();

const { values } = parseArgs({ options: { rounds: { type: "string", default: "200" } } });
const rounds = Math.ceil(Number(values.rounds) / 2);
for (const [what, play] of [
  ["while others went on", killRounds],
  ["and nobody was left", loneRounds],
] as const) {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-kills-"));
  const report = await play({ folder, rounds, held: Math.ceil(rounds / 10) });
  rmSync(folder, { recursive: true, force: true });
  console.log(
    `${report.rounds} rounds: ${report.kills} processes killed ${what}, with ${report.heldWhenKilled} leases that they held; ${report.grants} grants.`,
  );
  for (const fault of report.faults) console.error(fault);
  if (report.faults.length > 0 || report.rounds < rounds) process.exitCode = 1;
}
