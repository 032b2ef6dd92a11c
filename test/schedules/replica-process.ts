/**
 * One replica of a service with a schedule, until it is killed. Its wall clock is wrong by as much as it is told. What its body
 * does is to append to a log that all replicas share: a line when it begins, and one when it is done.
 */
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type ScheduledRun, systemClock } from "holdfast";
import { openStore } from "holdfast/open";
import type { ReplicaPlan } from "./kill-rounds.ts";

const plan = JSON.parse(process.argv[2] ?? "{}") as ReplicaPlan;
// Also when whoever started it was killed.
process.once("disconnect", () => process.exit(0));

const clock = { ...systemClock, wallMs: () => Date.now() + plan.skewMs };
const locks = createLocks(await openStore(plan.url), {
  clock,
  application: "schedules",
  onWarning: () => {},
});
const schedule = locks.schedule(plan.name, "* * * * * *", work, { ...plan.options, keepAlive: true });

async function work({ tick, attempt, fence }: ScheduledRun): Promise<void> {
  const line = `${tick.getTime()} ${attempt} ${fence} ${process.pid}\n`;
  appendFileSync(plan.log, `run ${line}`);
  if (plan.runMs > 0) await sleep(plan.runMs);
  appendFileSync(plan.log, `done ${line}`);
}

while (!schedule.status().available) await sleep(20);
process.send?.("ready");
