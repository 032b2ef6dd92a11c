/** What all stores must survive. */
import { migratePostgres, postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { afterAll, beforeAll, describe } from "vitest";
import { tableNames } from "../../../src/stores/postgres/table.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { serverFaults } from "../fault-suite.ts";

describe.skipIf(!canRunPostgres())("postgres: faults", { timeout: 40_000 }, () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres();
    await withPool(migratePostgres);
  }, 60_000);

  afterAll(() => server?.stop());

  function poolOf(port = server.port): Pool {
    const pool = new Pool({ connectionString: server.url.replace(`:${server.port}/`, `:${port}/`), max: 6 });
    // Connections of the pool that break while nobody uses them.
    pool.on("error", () => {});
    return pool;
  }

  async function withPool(use: (pool: Pool) => Promise<unknown>): Promise<void> {
    const pool = poolOf();
    await use(pool);
    await pool.end();
  }

  serverFaults({
    connect({ port, clock } = {}) {
      const pool = poolOf(port);
      const settings = clock === undefined ? {} : { clock };
      return { store: postgresStore(pool, settings), ...settings, end: () => pool.end() };
    },
    holder: { store: "postgres", target: () => server.url },
    stampsFences: true,
    engine: () => server,
    forget: () => withPool((pool) => pool.query("truncate holdfast_locks")),
    swap: { contains: () => tableNames("public.holdfast_locks").swapStatement, cutAfterBytes: 60 },
  });
});
