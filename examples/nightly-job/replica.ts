/**
 * One replica of a service with a nightly job. All replicas say the same, and each night the job runs on one of them.
 *
 * This is what an application's own code looks like. Its cron pattern comes from outside, so that nobody has to wait for the night.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type ScheduledRun } from "holdfast";
import { fileStore } from "holdfast/file";

const [folder = "./locks", cron = "0 3 * * *"] = process.argv.slice(2);
// A replica of this demo has no business without it: also when the demo itself was killed.
process.once("disconnect", () => process.exit(0));

const locks = createLocks(fileStore(folder), { application: "nightly-job-example" });
const schedule = locks.schedule("nightly-report", cron, writeReport, {
  timezone: "Europe/Berlin",
  missed: "latest", // a night in which nobody was there is made up for in the morning
  overlap: "queue", // a report that takes long delays the next one
  takeover: true, // a report whose writer died is written again
  ttlMs: 2_000,
  keepAlive: true,
});

async function writeReport({ tick, attempt, fence, signal }: ScheduledRun): Promise<void> {
  const night = tick.toISOString().slice(11, 19);
  console.log(`begins the report of ${night}, attempt ${attempt}, fence ${fence}`);
  await sleep(400, undefined, { signal });
  console.log(`has written the report of ${night}`);
}

process.once("SIGTERM", async () => {
  for (const { tick, attempt, outcome } of (await schedule.history()).toReversed()) {
    console.log(`remembers ${tick.toISOString().slice(11, 19)}, attempt ${attempt}: ${outcome}`);
  }
  await locks.close({ graceMs: 5_000 });
  process.disconnect?.();
});
