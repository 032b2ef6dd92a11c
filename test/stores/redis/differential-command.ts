/**
 * `npm run differential -- --operations N [--seed S]`: plays random histories to the script on a real Redis and to the
 * record machine. `-- --seed S --path P` plays the one history again that a failed run has named.
 */
import { parseArgs } from "node:util";
import { startRedis } from "../../engines/redis.ts";
import { findDifference } from "./difference-search.ts";
import { Differential } from "./differential.ts";

const { values } = parseArgs({
  options: {
    operations: { type: "string", default: "200000" },
    seed: { type: "string", default: "1" },
    path: { type: "string" },
  },
});
const seed = wholeNumber("--seed", values.seed, 0);
const operations = wholeNumber("--operations", values.operations, 1);
const path = values.path === undefined ? {} : { path: values.path };

const server = await startRedis();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => void server.stop().finally(() => process.exit(1)));
}

const differential = await Differential.open(server.port);
const startedMs = performance.now();
const found = await findDifference(differential, { seed, operations, ...path });
const seconds = (performance.now() - startedMs) / 1_000;
differential.close();
await server.stop();

if (found !== undefined) {
  console.log(found.story);
  console.log(`\nAgain: npm run differential -- --seed ${found.seed} --path ${found.path}`);
  process.exitCode = 1;
} else {
  const rate = Math.round(differential.operations / seconds);
  for (const [name, times] of [...differential.seen].sort())
    console.log(`${String(times).padStart(10)}  ${name}`);
  console.log(`${differential.operations} operations in ${seconds.toFixed(1)} s (${rate}/s). No difference.`);
}

function wholeNumber(name: string, text: string, least: number): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number >= least) return number;
  console.error(`${name} must be a whole number of ${least} or more, not "${text}".`);
  process.exit(2);
}
