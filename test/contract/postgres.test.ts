/** The suites over a real PostgreSQL: directly with pushes, and through PgBouncer in transaction mode without. */
import type { Store } from "holdfast";
import type { CasDriver } from "holdfast/cas";
import { migratePostgres, type PostgresStoreOptions, postgresStore } from "holdfast/postgres";
import { driverContract, type StoreHarness, storeContract } from "holdfast/testing";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunPgBouncer, type PgBouncer, startPgBouncer } from "../engines/pgbouncer.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../engines/postgres.ts";
import { newDriver } from "../stores/postgres/new-driver.ts";

/** The instances of one test stand for processes, so each has a pool of its own; all tests use the same few. */
function harnessOf(name: string, url: () => string, options: () => PostgresStoreOptions) {
  const pools: Pool[] = [];
  const harness: StoreHarness = {
    name,
    tickMs: 40,
    async open(openOptions) {
      const stores: Store[] = [];
      return {
        async store() {
          const place = stores.length;
          pools[place] ??= new Pool({ connectionString: url(), max: 20 });
          const store = postgresStore(pools[place], { ...options(), ...openOptions });
          stores[place] = store;
          return store;
        },
        async close() {
          await Promise.all(stores.map((store) => store.close()));
        },
      };
    },
  };
  const end = async () => {
    await Promise.all(pools.map((pool) => pool.end()));
  };
  return { harness, end };
}

describe.skipIf(!canRunPostgres())("postgres", () => {
  let server: PostgresServer;
  let bouncer: PgBouncer | undefined;

  beforeAll(async () => {
    server = await startPostgres({ settings: { max_connections: "200" } });
    if (canRunPgBouncer()) bouncer = await startPgBouncer(server, 8);
    // Not by whichever test comes first, which has little time.
    const pool = new Pool({ connectionString: server.url });
    for (const table of ["direct", "driven", "polled"]) await migratePostgres(pool, { table });
    await pool.end();
  }, 120_000);

  afterAll(async () => {
    await bouncer?.stop();
    await server?.stop();
  });

  const direct = harnessOf(
    "postgres: a pool",
    () => server.url,
    () => ({ table: "direct" }),
  );
  afterAll(direct.end);
  storeContract(direct.harness, { describe: describe.concurrent, it });

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

  describe.skipIf(!canRunPgBouncer())("through PgBouncer", () => {
    const polled = harnessOf(
      "postgres: PgBouncer, without pushes",
      () => bouncer!.url,
      () => ({ table: "polled", listener: false, maxPollMs: 100 }),
    );
    afterAll(polled.end);
    storeContract(polled.harness, { describe: describe.concurrent, it });
  });
});
