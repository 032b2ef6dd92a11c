/** The suites over a real PostgreSQL. */
import type { CasDriver } from "holdfast/cas";
import { migratePostgres } from "holdfast/postgres";
import { driverContract, storeContract } from "holdfast/testing";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../engines/postgres.ts";
import { newDriver } from "../stores/postgres/new-driver.ts";
import { postgresHarness } from "./postgres-harness.ts";

describe.skipIf(!canRunPostgres())("postgres", () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres({ settings: { max_connections: "200" } });
    // Before the tests, which have little time.
    const pool = new Pool({ connectionString: server.url });
    for (const table of ["direct", "driven"]) await migratePostgres(pool, { table });
    await pool.end();
  }, 120_000);

  afterAll(() => server?.stop());

  const { harness, end } = postgresHarness({
    name: "a pool",
    url: () => server.url,
    settings: { table: "direct" },
  });
  afterAll(end);
  storeContract(harness, { describe: describe.concurrent, it });

  describe("the driver", () => {
    const pools: Pool[] = [];
    afterAll(() => Promise.all(pools.map((pool) => pool.end())));
    driverContract(
      {
        name: "postgres",
        async open() {
          const drivers: CasDriver[] = [];
          return {
            async driver() {
              const place = drivers.length;
              pools[place] ??= new Pool({ connectionString: server.url, max: 20 });
              const driver = await newDriver(pools[place]!, { table: "driven" });
              drivers.push(driver);
              return driver;
            },
            async close() {
              await Promise.all(drivers.map((driver) => driver.close?.()));
            },
          };
        },
      },
      { describe: describe.concurrent, it },
    );
  });
});
