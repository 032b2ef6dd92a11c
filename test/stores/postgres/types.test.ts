/** The real clients fit without a cast, as `tsc` checks, and those of another database do not. */
import { type PostgresClient, type PostgresListener, postgresStore } from "holdfast/postgres";
import { createPool as createCallbackPool } from "mysql2";
import { createPool } from "mysql2/promise";
import type { Client, Pool, PoolClient } from "pg";
import { describe, expect, expectTypeOf, test } from "vitest";

describe("postgres: types", () => {
  test("pools and clients of pg are clients", () => {
    expectTypeOf<Pool>().toExtend<PostgresClient>();
    expectTypeOf<Client>().toExtend<PostgresClient>();
    expectTypeOf<PoolClient>().toExtend<PostgresClient>();
  });

  test("a client of pg listens", () => {
    expectTypeOf<Client>().toExtend<PostgresListener>();
  });

  test("a pool of mysql2 is refused, and sent where it belongs", () => {
    const pools = [createPool({ host: "127.0.0.1" }), createCallbackPool({ host: "127.0.0.1" })];
    for (const pool of pools) {
      expect(() => postgresStore(pool as never)).toThrow(/of mysql2\. Pass it to mysqlStore/);
    }
  });

  test("other things are not", () => {
    expectTypeOf<string>().not.toExtend<PostgresClient>();
    expectTypeOf<Promise<Pool>>().not.toExtend<PostgresClient>();
    // @ts-expect-error An address is not a client.
    expectTypeOf(postgresStore).toBeCallableWith("postgres://127.0.0.1");
  });
});
