/**
 * One candidate, until it is killed, or told by SIGTERM to resign and go. While it leads it appends to a log that all candidates
 * share, often, and only while it can prove that it leads. All processes of a machine share the clock that it writes.
 */
import { appendFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Term } from "holdfast";
import { openStore } from "holdfast/open";

const [url = "", log = "", ttl = ""] = process.argv.slice(2);
process.once("disconnect", () => process.exit(0));

const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;
const locks = createLocks(await openStore(url), { application: "elections", onWarning: () => {} });
const election = locks.election("office", { ttlMs: Number(ttl), retryMs: 50 });

process.once("SIGTERM", async () => {
  await election.resign();
  await locks.close();
  process.exit(0);
});

async function lead(term: Term): Promise<void> {
  appendFileSync(log, `elected ${term.fence} ${monotonicMs()} ${process.pid}\n`);
  while (!term.signal.aborted) {
    if (term.held) appendFileSync(log, `leads ${term.fence} ${monotonicMs()} ${process.pid}\n`);
    await sleep(10, undefined, { signal: term.signal }).catch(() => {});
  }
  appendFileSync(log, `ends ${term.fence} ${monotonicMs()} ${process.pid}\n`);
}

// The store is there when somebody leads or nobody does.
await election.leader();
process.send?.("ready");
await election.lead(lead, { info: `process ${process.pid}` });
