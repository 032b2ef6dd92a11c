import type { Store } from "holdfast";
import { migrateMysql, mysqlStore } from "holdfast/mysql";
import { type DriverHarness, driverContract, type StoreHarness, storeContract } from "holdfast/testing";
import { createPool, type Pool } from "mysql2/promise";
import { afterAll, beforeAll, describe, it } from "vitest";
import { sender } from "../../src/stores/mysql/client.ts";
import { mysqlDriver } from "../../src/stores/mysql/driver.ts";
import { tableNames } from "../../src/stores/mysql/table.ts";
import { canRunMariadb, type MariadbServer, startMariadb } from "../engines/mariadb.ts";

describe.skipIf(!canRunMariadb())("mysql", () => {
  let server: MariadbServer;
  /** The instances of one test stand for processes, so each has a pool of its own, which all tests share. */
  const pools: Pool[] = [];
  const poolOf = (place: number): Pool => {
    pools[place] ??= createPool({ uri: server.url, connectionLimit: 4 });
    return pools[place];
  };

  beforeAll(async () => {
    server = await startMariadb();
    await migrateMysql(poolOf(0));
  }, 120_000);

  afterAll(async () => {
    await Promise.all(pools.map((pool) => pool.end()));
    await server?.stop();
  });

  const drivers: DriverHarness = {
    name: "driver",
    pushes: false,
    async open() {
      let count = 0;
      return {
        async driver() {
          const driver = mysqlDriver({
            send: sender(poolOf(count++), 5_000),
            names: tableNames("holdfast_locks"),
            autoMigrate: false,
            durability: "ephemeral",
            maxRecordBytes: 1_048_576,
          });
          await driver.prepare?.();
          return driver;
        },
        async close() {},
      };
    },
  };

  const stores: StoreHarness = {
    name: "store",
    tickMs: 50,
    async open(options) {
      const opened: Store[] = [];
      return {
        async store() {
          const store = mysqlStore(poolOf(opened.length), {
            ...options,
            // The test's server does not wait for the disk.
            durability: "ephemeral",
          });
          opened.push(store);
          return store;
        },
        async close() {
          await Promise.all(opened.map((store) => store.close()));
        },
      };
    },
  };

  const concurrent = { describe: describe.concurrent, it };
  driverContract(drivers, concurrent);
  storeContract(stores, concurrent);
});
