/** What others leave behind in a session of the pool: each is refused with a clear error, or has no effect. */
import { createLocks } from "holdfast";
import {
  migratePostgres,
  type PostgresClient,
  type PostgresStoreOptions,
  postgresStore,
} from "holdfast/postgres";
import { Client, Pool, type PoolClient, type PoolConfig } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { newDriver } from "./new-driver.ts";

describe.skipIf(!canRunPostgres())("postgres: a session that others have used", () => {
  let server: PostgresServer;
  let admin: Pool;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new Pool({ connectionString: server.url, max: 2 });
    await migratePostgres(admin);
    await admin.query("create schema tenant; create role stranger");
    await migratePostgres(admin, { table: "tenant.holdfast_locks" });
  }, 60_000);

  afterAll(async () => {
    await admin?.end();
    await server?.stop();
  });

  /** One connection, so that the store gets the one that others have used. */
  function poolOf(config: PoolConfig = {}): Pool {
    const pool = new Pool({ connectionString: server.url, max: 1, ...config });
    pool.on("error", () => {});
    onTestFinished(() => pool.end());
    return pool;
  }

  function open(client: PostgresClient, options: PostgresStoreOptions = {}) {
    // No sweep takes the connection.
    const store = postgresStore(client, { listener: false, random: () => 0.99, ...options });
    const locks = createLocks(store, { requestTimeoutMs: 2_000, onWarning: () => {} });
    onTestFinished(() => locks.close());
    return locks;
  }

  /** As pg was before it told whether a session is in a transaction. */
  function withoutStatus(pool: Pool): Pool {
    const hide = (client: PoolClient) =>
      Object.defineProperty(client, "getTransactionStatus", { value: undefined });
    return pool.on("connect", hide);
  }

  const clients = [
    ["a pool", (pool: Pool) => pool],
    ["a pool of an older pg", withoutStatus],
  ] as const;

  // (1) The application gives a connection back after BEGIN. (2) The store's grant becomes part of that transaction, which only it
  // sees. (3) Another process is granted the lock. (4) The transaction is rolled back, or committed over the other grant.
  test.each(
    clients.flatMap(([what, kind]) => [
      [what, kind, "begin"] as const,
      [what, kind, "begin isolation level repeatable read"] as const,
    ]),
  )("%s gets no grant inside of an open transaction (%#)", async (what, kind, begin) => {
    const pool = kind(poolOf());
    const [locks, other] = [open(pool), open(poolOf())];
    const key = `${what} ${begin}`;
    await (await locks.mutex(key).acquire()).release();
    await pool.query(begin);
    await expect(locks.mutex(key).tryAcquire()).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("transaction"),
    });
    const lease = await other.mutex(key).tryAcquire();
    expect(lease?.held).toBe(true);
    // The connection was replaced, so the next request is served.
    expect(await locks.mutex(key).tryAcquire()).toBeNull();
    await lease?.release();
  });

  test("a connection in a failed transaction is refused, and replaced", async () => {
    const pool = poolOf({ max: 1 });
    const locks = open(pool);
    await locks.mutex("failed").run(() => {});
    const connection = await pool.connect();
    await connection.query("begin");
    await connection.query("select 1 / 0").catch(() => {});
    connection.release();
    await expect(locks.mutex("failed").tryAcquire()).rejects.toThrow("transaction");
    expect(await (await locks.mutex("failed").tryAcquire())?.release()).toBe(true);
  });

  test("a transaction on a single client of pg is left alone, and goes on to its commit", async () => {
    const client = new Client({ connectionString: server.url });
    await client.connect();
    onTestFinished(() => client.end());
    const locks = open(client);
    await locks.mutex("theirs").run(() => {});
    await client.query("create table theirs (value int)");
    await client.query("begin");
    await client.query("insert into theirs values (1)");
    await expect(locks.mutex("theirs").tryAcquire()).rejects.toThrow("transaction");
    await expect(locks.inspect("theirs")).rejects.toThrow("transaction");
    await client.query("commit");
    expect((await client.query("select * from theirs")).rows).toHaveLength(1);
    expect(await (await locks.mutex("theirs").tryAcquire())?.release()).toBe(true);
  });

  test("a store stays in the schema of its first use, whatever search_path others set", async () => {
    const pool = poolOf();
    const [locks, other] = [open(pool), open(poolOf())];
    const lease = await other.mutex("path").acquire();
    expect(await locks.mutex("path").tryAcquire()).toBeNull();
    await pool.query("set search_path = tenant");
    expect(await locks.mutex("path").tryAcquire()).toBeNull();
    expect(await locks.inspect("path")).toMatchObject({ heldCount: 1 });
    await lease.release();
  });

  test("a temporary table of the same name takes nobody's place", async () => {
    const pool = poolOf();
    const [locks, other] = [open(pool), open(poolOf())];
    const lease = await other.mutex("masked").acquire();
    expect(await locks.mutex("masked").tryAcquire()).toBeNull();
    await pool.query("create temporary table holdfast_locks (like holdfast_locks including all)");
    expect(await locks.mutex("masked").tryAcquire()).toBeNull();
    await lease.release();
  });

  test.each([true, false])(
    "a first use over a search_path that others changed is refused where two schemas are possible, autoMigrate: %s",
    async (autoMigrate) => {
      const pool = poolOf();
      await pool.query("set search_path = tenant");
      const error = await failureOf(open(pool, { autoMigrate }).mutex("k").tryAcquire());
      expect(error).toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringMatching(/search_path.* tenant\..*table: "public\.holdfast_locks"/),
      });
      const named = open(pool, { table: "public.holdfast_locks" });
      expect(await (await named.mutex("k").tryAcquire())?.release()).toBe(true);
    },
  );

  test("a search_path of the user decides at first use, as in any statement", async () => {
    const lease = await open(poolOf({ options: "-c search_path=tenant" }))
      .mutex("tenants")
      .acquire();
    expect(await open(poolOf(), { table: "tenant.holdfast_locks" }).mutex("tenants").tryAcquire()).toBeNull();
    expect(await (await open(poolOf()).mutex("tenants").tryAcquire())?.release()).toBe(true);
    await lease.release();
  });

  test.each([true, false])(
    "a table that is in one schema outside of the search_path is told with that, and no other is made, autoMigrate: %s",
    async (autoMigrate) => {
      await migratePostgres(admin, { table: "tenant.apart" });
      const pool = poolOf();
      await pool.query("set search_path = public");
      const error = await failureOf(open(pool, { table: "apart", autoMigrate }).mutex("k").tryAcquire());
      expect(error).toMatchObject({ code: "STORE_FAILURE" });
      expect((error as Error).message).toContain('table: "tenant.apart"');
      expect((error as Error).message).not.toContain("migratePostgres");
      const { rows } = await admin.query(
        "select relnamespace::regnamespace::text as schema from pg_class where relname = 'apart'",
      );
      expect(rows).toEqual([{ schema: "tenant" }]);
    },
  );

  test("the server's time is exact, whatever extra_float_digits is", async () => {
    const pool = poolOf();
    const driver = await newDriver(pool, { listens: false });
    for (const digits of [-15, -6, -3, 0, 1, 3]) {
      await pool.query(`set extra_float_digits = ${digits}`);
      const beforeMs = Date.now();
      const { nowMs } = await driver.read([]);
      const swapped = await driver.swap({ changes: [], earliestMs: 0, latestMs: 8_640_000_000_000_000 });
      const afterMs = Date.now() + 1;
      for (const ms of [nowMs, swapped.nowMs]) {
        expect(ms).toBeGreaterThanOrEqual(beforeMs);
        expect(ms).toBeLessThanOrEqual(afterMs);
      }
    }
  });

  // (1) P holds "ключ". (2) The bytes of Q's key are read as other characters, so Q asks for another row. (3) Q is granted it.
  test("another client_encoding, which would change keys, is refused, also by inspect", async () => {
    const [holding, pool] = [open(poolOf()), poolOf()];
    const locks = open(pool);
    const lease = await holding.mutex("ключ").acquire();
    expect(await locks.mutex("ключ").tryAcquire()).toBeNull();
    for (const ask of [() => locks.inspect("ключ"), () => locks.mutex("ключ").tryAcquire()]) {
      await pool.query("set client_encoding = 'LATIN1'");
      expect(await failureOf(ask())).toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining("client_encoding"),
      });
    }
    expect(await locks.mutex("ключ").tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
  });

  test.each([
    ["set default_transaction_isolation = 'serializable'", "UNSUPPORTED", "read committed"],
    ["set default_transaction_read_only = on", "STORE_UNAVAILABLE", "primary"],
    ["set role stranger", "UNAUTHORIZED", "rights"],
  ])("%s is refused with a clear error, and the connection replaced", async (setting, code, says) => {
    const pool = poolOf();
    const locks = open(pool);
    await locks.mutex("refused").run(() => {});
    await pool.query(setting);
    const store = postgresStore(pool, { listener: false, random: () => 0.99 });
    onTestFinished(() => store.close());
    const error = await failureOf(
      locks
        .mutex("refused")
        .tryAcquire()
        .then((lease) => lease?.release()),
    );
    // An outage is tried again, over another connection.
    if (code === "STORE_UNAVAILABLE") expect(error).toBeUndefined();
    else expect(error).toMatchObject({ code, message: expect.stringContaining(says) });
    expect(await (await locks.mutex("refused").tryAcquire())?.release()).toBe(true);
  });

  test.each([
    "set timezone = 'Pacific/Kiritimati'",
    "set datestyle = 'SQL, DMY'",
    "set intervalstyle = 'sql_standard'",
    "set bytea_output = 'escape'",
    "set standard_conforming_strings = off",
    "set backslash_quote = off",
    "set transform_null_equals = on",
    "set array_nulls = off",
    "set quote_all_identifiers = on",
    "set session_replication_role = replica",
    "set row_security = off",
    "set plan_cache_mode = force_custom_plan",
    "set enable_nestloop = off; set enable_indexscan = off; set enable_bitmapscan = off",
    "set default_transaction_deferrable = on",
    "set synchronous_commit = off",
    "set jit = on; set jit_above_cost = 0",
    "set extra_float_digits = -15",
    "set lock_timeout = 2000; set statement_timeout = 2000; set idle_in_transaction_session_timeout = 2000",
    "select pg_advisory_lock(5219013378245012)",
    "listen something; prepare anything as select 1",
    "discard all",
    "deallocate all",
  ])("%s has no effect", async (setting) => {
    const pool = poolOf();
    const [locks, other] = [open(pool), open(poolOf())];
    const keys = ["ключ a", "ключ b", "ключ c"].map((key) => `${key} ${setting}`);
    await locks.mutex(keys[0] as string).run(() => {});
    await pool.query(setting);
    const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()));
    for (const key of keys) expect(await other.mutex(key).tryAcquire()).toBeNull();
    expect(await locks.inspect(keys[1] as string)).toMatchObject({ heldCount: 1 });
    for (const lease of leases) expect(await lease.release()).toBe(true);
    const next = await other.mutex(keys[0] as string).acquire();
    expect(next.fence).toBeGreaterThan(leases[0]?.fence ?? 0n);
    await next.release();
  });
});

function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => undefined,
    (error: unknown) => error,
  );
}
