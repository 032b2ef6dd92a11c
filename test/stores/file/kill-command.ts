/**
 * `npm run kills -- [--rounds N]`: kills processes that use the file store, in 200 rounds by default. In half of the rounds other
 * processes continue; in the other half, all processes that have the folder open are killed.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { killRounds } from "./kill-rounds.ts";
import { loneRounds } from "./lone-rounds.ts";

const { values } = parseArgs({ options: { rounds: { type: "string", default: "200" } } });
const rounds = Math.ceil(Number(values.rounds) / 2);
for (const [survivors, play] of [
  ["while others continued", killRounds],
  ["and none was left", loneRounds],
] as const) {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-kills-"));
  const report = await play({ folder, rounds, held: Math.ceil(rounds / 10) });
  rmSync(folder, { recursive: true, force: true });
  console.log(
    `${report.rounds} rounds: ${report.kills} processes killed ${survivors}, with ${report.heldWhenKilled} leases that they held; ${report.grants} grants.`,
  );
  for (const fault of report.faults) console.error(fault);
  if (report.faults.length > 0 || report.rounds < rounds) process.exitCode = 1;
}
