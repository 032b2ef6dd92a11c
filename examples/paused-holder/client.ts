/** One client: takes the lock, makes up its mind about what to write, and writes it when it is told to. */
import { createLocks, HoldfastError } from "holdfast";
import { fencedFetch } from "holdfast/fencing";
import { ipcStore } from "../replicas/ipc-store.ts";

/** What a client tells the demo. */
export interface ClientEvent {
  readonly type: "client";
  readonly event: "holds" | "wrote";
  readonly text: string;
}

const [name = "", url = "", ttlMs = ""] = process.argv.slice(2);

// Without the demo it has no business.
process.once("disconnect", () => process.exit(0));

const locks = createLocks(ipcStore(), { onWarning: () => {} });
const told = new Promise<void>((resolve) => {
  process.on("message", (message) => {
    if (message === "write") resolve();
  });
});
const { key, fence } = await locks.mutex("report", { ttlMs: Number(ttlMs) }).acquire();
tell("holds", `holds the lock, with fence ${fence}`);
await told;

// A real program would be stopped somewhere in here, between a look at the lease and the arrival of its request. So this one does
// not look either: it sends the fence that it was granted. `fencedFetch(lease, …)` would notice that the lease is lost.
const request = { method: "PUT", body: `written by ${name}` };
const plain = await fetch(`${url}/plain.txt`, request);
const fenced = await fencedFetch({ key, fence }, `${url}/fenced.txt`, request).then(
  () => "is written",
  (error) => `is refused: ${HoldfastError.from(error).code}`,
);
tell("wrote", `plain.txt ${plain.ok ? "is written" : "is refused"}, fenced.txt ${fenced}`);
await locks.close();
process.disconnect?.();

function tell(event: ClientEvent["event"], text: string): void {
  process.send?.({ type: "client", event, text } satisfies ClientEvent);
}
