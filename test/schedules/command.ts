/**
 * `npm run schedules -- [--ticks N] [--store file|redis]`: five replicas whose clocks are wrong by up to three seconds run a
 * schedule of one tick a second, and are killed and replaced meanwhile. `-- --histories N`: random histories in virtual time
 * instead, from seed 1 or `--from`.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startRedis } from "../engines/redis.ts";
import { compilePrograms } from "../programs.ts";
import { runScheduleHistory } from "./histories.ts";
import { killRounds } from "./kill-rounds.ts";

compilePrograms();

const { values } = parseArgs({
  options: {
    ticks: { type: "string", default: "60" },
    store: { type: "string", default: "file" },
    histories: { type: "string" },
    from: { type: "string", default: "1" },
  },
});
const faults: string[] = [];
if (values.histories === undefined) await killProcesses();
else await tellHistories(Number(values.from), Number(values.histories));
for (const fault of faults) console.error(fault);
process.exitCode = faults.length === 0 ? 0 : 1;

async function killProcesses(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-schedules-"));
  const redis = values.store === "redis" ? await startRedis() : undefined;
  const url = redis === undefined ? `file:${join(folder, "locks")}` : `redis://127.0.0.1:${redis.port}`;
  const rows = [];
  for (const takeover of [false, true]) {
    const ticks = Number(values.ticks);
    const report = await killRounds({ url, folder, ticks, replicas: 5, killEveryMs: 2_000, takeover });
    faults.push(...report.faults);
    rows.push({
      takeover,
      replicas: report.skewsMs.length,
      killed: report.kills,
      "clocks from ms": Math.min(...report.skewsMs),
      "to ms": Math.max(...report.skewsMs),
      ticks: report.ticks,
      "ran once": report.onceOnly,
      "ran again, higher fence": report.repeated,
      "cut short by a kill": report.cutShort,
    });
  }
  await redis?.stop();
  rmSync(folder, { recursive: true, force: true });
  console.log(`One tick a second over the ${values.store} store, five replicas at a time:`);
  console.table(rows);
}

async function tellHistories(from: number, count: number): Promise<void> {
  const rows = [];
  for (const takeover of [false, true]) {
    const row = { takeover, histories: count, runs: 0, crashes: 0, cutShort: 0, repeated: 0 };
    for (let seed = from; seed < from + count; seed++) {
      const history = await runScheduleHistory(seed, takeover);
      for (const name of ["runs", "crashes", "cutShort", "repeated"] as const) row[name] += history[name];
      faults.push(...history.faults.map((fault) => `seed ${seed}, takeover ${takeover}: ${fault}`));
    }
    rows.push(row);
  }
  console.table(rows);
}
