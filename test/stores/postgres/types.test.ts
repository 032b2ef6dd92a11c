/** The real clients fit without a cast. `tsc` checks this file; nothing in it has to run. */
import { type PostgresClient, type PostgresListener, postgresStore } from "holdfast/postgres";
import type { Client, Pool, PoolClient } from "pg";
import { describe, expectTypeOf, test } from "vitest";

describe("postgres: types", () => {
  test("pools and clients of pg are clients", () => {
    expectTypeOf<Pool>().toExtend<PostgresClient>();
    expectTypeOf<Client>().toExtend<PostgresClient>();
    expectTypeOf<PoolClient>().toExtend<PostgresClient>();
  });

  test("a client of pg listens", () => {
    expectTypeOf<Client>().toExtend<PostgresListener>();
  });

  test("other things are not", () => {
    expectTypeOf<string>().not.toExtend<PostgresClient>();
    expectTypeOf<Promise<Pool>>().not.toExtend<PostgresClient>();
    // @ts-expect-error An address is not a client.
    expectTypeOf(postgresStore).toBeCallableWith("postgres://127.0.0.1");
  });
});
