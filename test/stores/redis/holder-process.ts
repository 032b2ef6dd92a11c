/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";

const [port, ttlMs] = process.argv.slice(2).map(Number);
const client = new Redis(port ?? 0, "127.0.0.1");
const locks = createLocks(redisStore(client));
const lease = await locks.mutex("paused", { ttlMs: ttlMs ?? 0 }).acquire();
process.send?.({ fence: String(lease.fence) });

// The first thing that happens after a pause is one more turn of this: a write, unless the lease is known to be lost.
while (lease.held) {
  process.send?.({ wrote: Date.now() });
  await sleep(5);
}
process.send?.({ lost: true });
await locks.close();
client.disconnect();
process.disconnect?.();
