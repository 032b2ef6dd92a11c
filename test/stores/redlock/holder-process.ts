/** A process that takes turns at a lock of several servers, whose ports it is told. */
import { redlockStore } from "holdfast/redlock";
import { Redis } from "ioredis";
import { playPart } from "../parts.ts";

const [ports = "", ttlMs, part] = process.argv.slice(2);
const clients = ports.split(",").map((port) => new Redis(Number(port), "127.0.0.1"));
await playPart(part, redlockStore(clients), Number(ttlMs));
for (const client of clients) client.disconnect();
process.disconnect?.();
