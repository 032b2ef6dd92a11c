/** The suite over a PostgreSQL behind PgBouncer in transaction mode, where the store has no pushes. */
import { migratePostgres } from "holdfast/postgres";
import { storeContract } from "holdfast/testing";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunPgBouncer, type PgBouncer, startPgBouncer } from "../engines/pgbouncer.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../engines/postgres.ts";
import { postgresHarness } from "./postgres-harness.ts";

describe.skipIf(!canRunPostgres() || !canRunPgBouncer())("postgres", () => {
  let server: PostgresServer;
  let bouncer: PgBouncer;

  beforeAll(async () => {
    server = await startPostgres({ settings: { max_connections: "200" } });
    bouncer = await startPgBouncer(server, 8);
    const pool = new Pool({ connectionString: server.url });
    await migratePostgres(pool, { table: "polled" });
    await pool.end();
  }, 120_000);

  afterAll(async () => {
    await bouncer?.stop();
    await server?.stop();
  });

  const { harness, end } = postgresHarness({
    name: "PgBouncer, without pushes",
    url: () => bouncer.url,
    settings: { table: "polled", listener: false, maxPollMs: 100 },
  });
  afterAll(end);
  storeContract(harness, { describe: describe.concurrent, it });
});
