/**
 * One replica of a service in which only the leader hands out work. The others stand by.
 *
 * This is what an application's own code looks like.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Term } from "holdfast";
import { fileStore } from "holdfast/file";

const [folder = "./locks", name = "candidate"] = process.argv.slice(2);
// A candidate of this demo has no business without it: also when the demo itself was killed.
process.once("disconnect", () => process.exit(0));

const locks = createLocks(fileStore(folder), { application: "leader-loop-example" });
const election = locks.election("dispatcher", { ttlMs: 1_500 });

process.once("SIGTERM", async () => {
  console.log("is told to go, and resigns");
  await election.resign();
  await locks.close();
  process.disconnect?.();
});

void follow();
await election.lead(dispatch, { info: name });

async function dispatch({ fence, signal }: Term): Promise<void> {
  console.log(`leads, fence ${fence}`);
  for (let round = 1; !signal.aborted; round++) {
    console.log(`hands out round ${round}, fence ${fence}`);
    await sleep(300, undefined, { signal }).catch(() => {});
  }
  console.log("leads no longer");
}

/** What a standby does with it: send its work to whoever leads. */
async function follow(): Promise<void> {
  for await (const view of election.observe()) {
    if (view.state === "led" && !view.leader.self) console.log(`follows ${view.leader.info}`);
  }
}
