/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { playPart } from "../parts.ts";

const [port, ttlMs, part] = process.argv.slice(2);
const client = new Redis(Number(port), "127.0.0.1");
await playPart(part, redisStore(client), Number(ttlMs));
client.disconnect();
process.disconnect?.();
