import { createLocks } from "holdfast";
import {
  type Fenced,
  fencePostgres,
  MAX_FENCE,
  migratePostgresFence,
  type PostgresTransaction,
} from "holdfast/fencing";
import { Pool, type PoolClient } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../engines/postgres.ts";
import { type Begin, describeInterleavings, outcome } from "./interleavings.ts";
import { checkRegister, type RegisterWrite } from "./register-model.ts";

describe.skipIf(!canRunPostgres())("postgres: fenced transactions", () => {
  let server: PostgresServer;
  let pool: Pool;

  beforeAll(async () => {
    server = await startPostgres();
    pool = new Pool({ connectionString: server.url, max: 20 });
    await migratePostgresFence(pool);
    await pool.query(
      "create table register (id serial primary key, resource text, fence bigint, value text)",
    );
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

  const begin: Begin = async ({ name }) => {
    const client = await connect();
    await client.query(`begin isolation level ${name}`);
    const { pid } = (await client.query("select pg_backend_pid() as pid")).rows[0];
    return {
      look: () => client.query("select count(*) from holdfast_fence"),
      guard: (resource, fence) => fencePostgres(client, { fence }, { resource }),
      async waits() {
        const { rows } = await pool.query("select wait_event_type from pg_stat_activity where pid = $1", [
          pid,
        ]);
        return rows[0]?.wait_event_type === "Lock";
      },
      commit: () => client.query("commit"),
      rollback: () => client.query("rollback"),
    };
  };

  describeInterleavings(
    [
      { name: "read committed", undone: false },
      { name: "repeatable read", undone: true },
      { name: "serializable", undone: true },
    ],
    begin,
  );

  test.each(["read committed", "serializable"])(
    "writers in any order agree with the model, at %s",
    async (level) => {
      await checkRegister({
        runs: 12,
        rollsBack: true,
        write: (write) => writeRegister(level, write),
        async written(resource) {
          const { rows } = await pool.query(
            "select fence::text as fence, value from register where resource = $1 order by id",
            [resource],
          );
          return rows.map(({ fence, value }) => ({ fence: BigInt(fence), value }));
        },
      });
    },
  );

  async function writeRegister(
    level: string,
    { resource, fence, value, rollsBack }: RegisterWrite,
  ): Promise<void> {
    const client = await pool.connect();
    try {
      await client.query(`begin isolation level ${level}`);
      await fencePostgres(client, { fence }, { resource });
      await client.query("insert into register (resource, fence, value) values ($1, $2, $3)", [
        resource,
        String(fence),
        value,
      ]);
      await client.query(rollsBack ? "rollback" : "commit");
    } catch (error) {
      await client.query("rollback");
      throw error;
    } finally {
      client.release();
    }
  }

  test("a lease names its resource, and a refused write leaves nothing behind", async () => {
    const locks = createLocks();
    onTestFinished(() => locks.close());
    const stale = await locks.mutex("ledger").run(({ fence, key }) => ({ fence, key }));
    const lease = await locks.mutex("ledger").acquire();
    const client = await connect();
    await client.query("begin");
    await fencePostgres(client, lease);
    await client.query("commit");

    await client.query("begin");
    await client.query("insert into register (resource, value) values ('ledger', 'stale')");
    const refused = fencePostgres(client, stale);
    await expect(refused).rejects.toMatchObject({
      code: "STALE_FENCE",
      key: "ledger",
      fence: stale.fence,
      mark: lease.fence,
    });
    await client.query("rollback");
    expect((await client.query("select * from register where resource = 'ledger'")).rows).toEqual([]);
  });

  test("a lease that is known to be lost is refused before the server is asked", async () => {
    const locks = createLocks();
    const lease = await locks.mutex("ledger").acquire();
    await locks.close();
    const client = { query: () => expect.fail("It was asked.") };
    await expect(fencePostgres(client, lease)).rejects.toMatchObject({ code: "LEASE_LOST" });
  });

  test("fences are compared to the last digit, up to the highest", async () => {
    const client = await connect();
    await client.query("begin");
    await fencePostgres(client, { fence: MAX_FENCE }, { resource: "highest" });
    const refused = fencePostgres(client, { fence: MAX_FENCE - 1n }, { resource: "highest" });
    await expect(refused).rejects.toMatchObject({ code: "STALE_FENCE", mark: MAX_FENCE });
  });

  test("without a transaction it is refused, whatever the client knows of that", async () => {
    const client = await connect();
    // As a version of pg that does not know, or another client.
    const unknowing: PostgresTransaction = { query: (text, values) => client.query(text, values) };
    const lease = { fence: 5n, key: "alone" };
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

  test("a pool is refused, since each of its queries may go to another connection", async () => {
    const refused = fencePostgres(pool, { fence: 5n, key: "pool" });
    await expect(refused).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await expect(fencePostgres(null as never, { fence: 5n, key: "pool" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  test("a fence without a key needs a resource", async () => {
    const client = await connect();
    await client.query("begin");
    await expect(fencePostgres(client, { fence: 5n })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await expect(fencePostgres(client, { fence: 5n }, { resource: "" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("resource"),
    });
    await expect(fencePostgres(client, { key: "a" } as Fenced)).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  test("the table is made once by many at a time, in a schema too, and a missing one is told", async () => {
    await pool.query("create schema billing");
    const table = "billing.fences";
    const client = await connect();
    await client.query("begin");
    const missing = fencePostgres(client, { fence: 5n, key: "a" }, { table });
    await expect(missing).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("migratePostgresFence"),
    });
    await client.query("rollback");
    await Promise.all(Array.from({ length: 8 }, () => migratePostgresFence(pool, { table })));
    await client.query("begin");
    await fencePostgres(client, { fence: 5n, key: "a" }, { table });
    await client.query("commit");
    expect((await pool.query("select * from billing.fences")).rows).toEqual([{ resource: "a", fence: "5" }]);
  });

  test("a circle of waiting is broken by the server, and told as something to run again", async () => {
    const [first, second] = [await connect(), await connect()];
    for (const client of [first, second]) await client.query("begin; set local deadlock_timeout = 50");
    await fencePostgres(first, { fence: 5n }, { resource: "circle a" });
    await fencePostgres(second, { fence: 5n }, { resource: "circle b" });
    const cross = async (client: PoolClient, resource: string) => {
      const said = await outcome(fencePostgres(client, { fence: 5n }, { resource }));
      await client.query("rollback");
      return said;
    };
    const outcomes = await Promise.all([cross(first, "circle b"), cross(second, "circle a")]);
    expect(outcomes.sort()).toEqual(["again", "committed"]);
  });

  test("a connection that is lost is an outage, and a lock that is not had in time may be tried again", async () => {
    const [holder, waiter, victim] = [await connect(), await connect(), await connect()];
    victim.on("error", () => {});
    await holder.query("begin");
    await fencePostgres(holder, { fence: 5n, key: "held" });
    await waiter.query("begin; set local lock_timeout = 50");
    expect(await outcome(fencePostgres(waiter, { fence: 6n, key: "held" }))).toBe("again");
    await victim.query("begin");
    const { pid } = (await victim.query("select pg_backend_pid() as pid")).rows[0];
    await pool.query("select pg_terminate_backend($1)", [pid]);
    expect(await outcome(fencePostgres(victim, { fence: 6n, key: "lost" }))).toBe("again");
  });
});
