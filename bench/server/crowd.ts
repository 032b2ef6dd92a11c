/** A crowd that waits for one key, from several clients, and is served one after the other. */
import { createLocks } from "holdfast";
import { remoteStore } from "holdfast/remote";

export interface CrowdResult {
  /** How many were not served in the place in which they had come. */
  readonly outOfOrder: number;
  readonly handoffMs: number;
}

const KEY = "bench:crowd";

/** Time enough for a crowd to form and to be served. */
const TTL_MS = 60_000;

export async function measureCrowd(url: string, waiters: number, clients: number): Promise<CrowdResult> {
  const all = Array.from({ length: clients }, () =>
    createLocks(remoteStore(url), { requestTimeoutMs: 60_000 }),
  );
  const [first] = all;
  const holder = await first!.mutex(KEY, { ttlMs: TTL_MS }).acquire();
  const served: number[] = [];
  const waiting: Promise<void>[] = [];
  const wait = async (locks: (typeof all)[number], place: number) => {
    const lease = await locks.mutex(KEY, { ttlMs: TTL_MS }).acquire();
    served.push(place);
    await lease.release();
  };
  const each = Math.ceil(waiters / clients);
  for (const locks of all) {
    for (let count = 0; count < each; count++) waiting.push(wait(locks, waiting.length));
    // The next client's come after these, on another connection.
    while ((await first!.inspect(KEY)).waitingCount < waiting.length) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  const startMs = performance.now();
  await holder.release();
  await Promise.all(waiting);
  const handoffMs = (performance.now() - startMs) / waiting.length;
  await Promise.all(all.map((locks) => locks.close()));
  return { outOfOrder: served.filter((place, index) => place !== index).length, handoffMs };
}
