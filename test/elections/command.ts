/**
 * `npm run elections -- [--rounds N] [--store file|redis] [--ttl MS]`: leaders are killed, or told to go, and it is measured how
 * long the office is empty.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startRedis } from "../engines/redis.ts";
import { compilePrograms } from "../programs.ts";
import { electionRounds } from "./kill-rounds.ts";

compilePrograms();

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "20" },
    store: { type: "string", default: "file" },
    ttl: { type: "string", default: "1000" },
  },
});
const ttlMs = Number(values.ttl);
const folder = mkdtempSync(join(tmpdir(), "holdfast-elections-"));
const redis = values.store === "redis" ? await startRedis() : undefined;
const url = redis === undefined ? `file:${join(folder, "locks")}` : `redis://127.0.0.1:${redis.port}`;
const report = await electionRounds({ url, folder, candidates: 3, ttlMs, rounds: Number(values.rounds) });
await redis?.stop();
rmSync(folder, { recursive: true, force: true });

const row = (took: readonly number[], ideal: string) => {
  const sorted = [...took].sort((a, b) => a - b);
  const at = (part: number) =>
    Number((sorted[Math.floor((sorted.length - 1) * part)] ?? Number.NaN).toFixed(1));
  return { times: took.length, "least ms": at(0), "median ms": at(0.5), "most ms": at(1), ideal };
};
const trip = report.roundTripMs.toFixed(1);
console.log(`${report.terms} terms over the ${values.store} store, three candidates, ttl ${ttlMs} ms.`);
console.log("How long the office was empty:");
console.table({
  "after a crash": row(report.crashes, `${Math.round((ttlMs * 2) / 3)} to ${ttlMs}, and ${trip}`),
  "after a resignation": row(report.resignations, `${trip} (one round trip)`),
});
for (const fault of report.faults) console.error(fault);
process.exitCode = report.faults.length === 0 ? 0 : 1;
