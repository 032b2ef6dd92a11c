/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb6";
import { playPart } from "../parts.ts";

const [url = "", ttlMs, part] = process.argv.slice(2);
const client = new MongoClient(url);
await playPart(part, mongodbStore(client.db("faults")), Number(ttlMs));
await client.close();
process.disconnect?.();
