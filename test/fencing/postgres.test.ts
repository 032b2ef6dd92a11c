import { fencePostgres, migratePostgresFence, type PostgresTransaction } from "holdfast/fencing";
import { Pool, type PoolClient } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../engines/postgres.ts";
import { outcome } from "./interleavings.ts";
import { registerTable, type SqlConnection, testFencedTransactions } from "./sql-fencing.ts";

describe.skipIf(!canRunPostgres())("postgres: fenced transactions", () => {
  let server: PostgresServer;
  let pool: Pool;

  beforeAll(async () => {
    server = await startPostgres();
    pool = new Pool({ connectionString: server.url, max: 20 });
    await migratePostgresFence(pool);
    await pool.query(registerTable("serial"));
  }, 60_000);

  afterAll(async () => {
    await pool?.end();
    await server?.stop();
  });

  async function connect(): Promise<PoolClient> {
    const client = await pool.connect();
    onTestFinished(() => client.release(true));
    return client;
  }

  async function newConnection(): Promise<SqlConnection> {
    const client = await pool.connect();
    // The server may end it.
    client.on("error", () => {});
    // A second is long where a test makes many circles of waiting.
    await client.query("set deadlock_timeout = 50");
    const { pid } = (await client.query("select pg_backend_pid() as pid")).rows[0];
    return {
      begin: (level) => client.query(level === undefined ? "begin" : `begin isolation level ${level}`),
      query: async (sql) => (await client.query(sql)).rows,
      fence: (lease, options) => fencePostgres(client, lease, options),
      async waits() {
        const { rows } = await pool.query("select wait_event_type from pg_stat_activity where pid = $1", [
          pid,
        ]);
        return rows[0]?.wait_event_type === "Lock";
      },
      cutOff: () => pool.query("select pg_terminate_backend($1)", [pid]),
      end: () => client.release(true),
    };
  }

  testFencedTransactions({
    connect: newConnection,
    admin: async (sql) => (await pool.query(sql)).rows,
    fence: fencePostgres,
    migrate: (options) => migratePostgresFence(pool, options),
    migration: "migratePostgresFence",
    levels: [
      { name: "read committed", undone: "none" },
      { name: "repeatable read", undone: "all" },
      { name: "serializable", undone: "all" },
    ],
    modelLevels: ["read committed", "serializable"],
    looksAt: "holdfast_fence",
    hurry: "set lock_timeout = 50",
    makePlace: "create schema billing",
    strangers: async () => [pool],
  });

  test("whether there is a transaction is found out, whatever the client knows of that", async () => {
    const client = await connect();
    // As a version of pg that does not know, or another client.
    const unknowing: PostgresTransaction = { query: (text, values) => client.query(text, values) };
    const lease = { fence: 5n, key: "unknowing" };
    for (const each of [client, unknowing]) {
      await expect(fencePostgres(each, lease)).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("inside a transaction"),
      });
    }
    await client.query("begin");
    for (const each of [client, unknowing])
      expect(await outcome(fencePostgres(each, lease))).toBe("committed");
    await client.query("commit");
  });

  test("a holder that is paused inside its transaction is ended by the server, and leaves nothing", async () => {
    const [paused, next] = [await connect(), await connect()];
    paused.on("error", () => {});
    await paused.query("begin; set local idle_in_transaction_session_timeout = 200");
    await fencePostgres(paused, { fence: 5n, key: "idle" });
    await paused.query("insert into register (resource, value) values ('idle', 'paused')");
    await next.query("begin");
    // It waits for the other one's end, which comes by itself.
    await fencePostgres(next, { fence: 6n, key: "idle" });
    await next.query("commit");
    expect(await outcome(paused.query("commit"))).not.toBe("committed");
    expect((await pool.query("select * from register where resource = 'idle'")).rows).toEqual([]);
  });
});
