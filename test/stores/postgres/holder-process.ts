/** A process that holds a lock and writes as long as it holds it. `faults.test.ts` stops it for longer than the ttl. */
import { postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { writeWhileHeld } from "../writing-holder.ts";

const [url = "", ttlMs] = process.argv.slice(2);
const pool = new Pool({ connectionString: url });
await writeWhileHeld(postgresStore(pool, { autoMigrate: true }), Number(ttlMs));
await pool.end();
process.disconnect?.();
