/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { playPart } from "../parts.ts";

const [url = "", ttlMs, part] = process.argv.slice(2);
const pool = new Pool({ connectionString: url });
await playPart(part, postgresStore(pool, { autoMigrate: true }), Number(ttlMs));
await pool.end();
process.disconnect?.();
