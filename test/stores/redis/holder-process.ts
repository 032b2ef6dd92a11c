/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { writeWhileHeld } from "../writing-holder.ts";

const [port, ttlMs] = process.argv.slice(2).map(Number);
const client = new Redis(port ?? 0, "127.0.0.1");
await writeWhileHeld(redisStore(client), ttlMs ?? 0);
client.disconnect();
process.disconnect?.();
