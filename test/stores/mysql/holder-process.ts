/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { mysqlStore } from "holdfast/mysql";
import { createPool } from "mysql2/promise";
import { playPart } from "../parts.ts";

const [url = "", ttlMs, part] = process.argv.slice(2);
const pool = createPool(url);
await playPart(part, mysqlStore(pool, { durability: "ephemeral" }), Number(ttlMs));
await pool.end();
process.disconnect?.();
