/**
 * One replica of a service. All of them want to do the job; the lock lets one of them.
 *
 * This is what an application's own code looks like, with `ipcStore()` in the place of the store that it runs on.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Lease } from "holdfast";
import { ipcStore } from "./ipc-store.ts";
import { isProgress, job, type ReplicaEvent } from "./story.ts";

// A replica of this demo has no business without it: also when the demo itself was killed.
process.once("disconnect", () => process.exit(0));

const locks = createLocks(ipcStore(), { application: "replicas-example" });
const report = locks.mutex(job.key, { ttlMs: job.ttlMs });

tell({ type: "event", event: "waiting" });
await report.run(runJob);
await locks.close();
process.disconnect?.();

async function runJob(lease: Lease): Promise<void> {
  const { fence, signal } = lease;
  tell({ type: "event", event: "running", fence });
  // A predecessor may have done some of it: a job that can be taken over goes on where the last one stopped.
  for (let part = (await partsDone()) + 1; part <= job.parts; part++) {
    await sleep(job.partMs, undefined, { signal });
    tell({ type: "event", event: "part", part, fence });
  }
  tell({ type: "event", event: "finished", fence });
}

/** Resolves with the first progress message. The listener stays between messages: several may arrive in one turn of the event loop. */
function partsDone(): Promise<number> {
  return new Promise((resolve) => {
    const listen = (message: unknown) => {
      if (!isProgress(message)) return;
      process.off("message", listen);
      resolve(message.partsDone);
    };
    process.on("message", listen);
  });
}

function tell(event: ReplicaEvent): void {
  process.send?.(event);
}
