/** Connections that a network has forgotten: nothing comes back over them, and no end is told. */
import { once } from "node:events";
import { createLocks } from "holdfast";
import { migratePostgres, type PostgresClient, postgresStore } from "holdfast/postgres";
import { Client, Pool, type PoolConfig } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { forgetful } from "../forgetful-network.ts";

const timeoutMs = 500;

describe.skipIf(!canRunPostgres())("postgres: silent connections", { timeout: 30_000 }, () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres();
    const pool = new Pool({ connectionString: server.url });
    await migratePostgres(pool);
    await pool.end();
  }, 60_000);

  afterAll(() => server?.stop());

  function urlAt(port: number): string {
    return server.url.replace(`:${server.port}/`, `:${port}/`);
  }

  function poolAt(port: number, config: PoolConfig = {}): Pool {
    const pool = new Pool({ connectionString: urlAt(port), idleTimeoutMillis: 0, ...config });
    pool.on("error", () => {});
    onTestFinished(() => pool.end());
    return pool;
  }

  function open(
    client: PostgresClient,
    { requestTimeoutMs = 4 * timeoutMs, listener = undefined as false | undefined } = {},
  ) {
    const store = postgresStore(client, {
      requestTimeoutMs: timeoutMs,
      ...(listener === undefined ? {} : { listener }),
    });
    const locks = createLocks(store, { requestTimeoutMs, onWarning: () => {} });
    onTestFinished(() => locks.close());
    return locks;
  }

  /** Every connection of the pool, at once. */
  function useAll(pool: Pool, count: number) {
    return Promise.all(Array.from({ length: count }, () => pool.query("select pg_sleep(0.05)")));
  }

  test.each([
    { pool: "a pool", config: { max: 4 } },
    { pool: "a pool of two", config: { max: 2 } },
  ])("$pool is whole again when the network is, and few requests wait meanwhile", async ({ config }) => {
    const network = await forgetful(server.port);
    const pool = poolAt(network.port, config);
    const locks = open(pool);
    await locks.mutex("warm").run(() => {});
    network.fallSilent();
    for (let round = 0; round < 2; round++) {
      const asked = ["a", "b", "c", "d", "e", "f"].map((key) => locks.mutex(key).tryAcquire());
      for (const { status } of await Promise.allSettled(asked)) expect(status).toBe("rejected");
      expect(pool.totalCount).toBeLessThanOrEqual(config.max);
      expect(pool.waitingCount).toBeLessThanOrEqual(6);
    }
    network.comeBack();
    expect(await (await locks.mutex("after").tryAcquire())?.release()).toBe(true);
    await until("no connection is kept from others", async () => {
      await useAll(pool, config.max - 1);
      return pool.waitingCount === 0;
    });
  });

  test("idle connections that were forgotten with one that is found silent are not tried one after the other", async () => {
    const network = await forgetful(server.port);
    const pool = poolAt(network.port, { max: 10 });
    const locks = open(pool, { requestTimeoutMs: 3 * timeoutMs, listener: false });
    await locks.mutex("idle").run(() => {});
    await useAll(pool, 10);
    expect(pool.idleCount).toBe(10);
    network.fallSilent();
    network.comeBack();
    expect(await (await locks.mutex("idle").tryAcquire())?.release()).toBe(true);
  });

  test("a waiter is notified again over another session that listens", async () => {
    const network = await forgetful(server.port);
    const [locks, other] = [open(poolAt(network.port)), open(poolAt(server.port))];
    const mutex = locks.mutex("heard", { ttlMs: 60_000 });
    const first = await other.mutex("heard", { ttlMs: 60_000 }).acquire();
    const waiting = mutex.acquire();
    await until("it waits", async () => (await other.inspect("heard")).waitingCount === 1);
    network.fallSilent();
    network.comeBack();
    // Is what finds out about the silence.
    await until("it is back", async () => (await locks.inspect("heard")).waitingCount === 1);
    await until("another session listens", async () => {
      const listens =
        "select count(*)::int as n from pg_stat_activity where query like 'listen%' and state = 'idle'";
      const admin = new Client({ connectionString: server.url });
      await admin.connect();
      const { rows } = await admin.query(listens);
      await admin.end();
      // The forgotten one is still there.
      return rows[0].n === 3;
    });
    await first.release();
    await (await waiting).release();
  });

  test("a silent single client is an outage and no contention, and no requests pile up behind it", async () => {
    const network = await forgetful(server.port);
    const client = new Client({ connectionString: urlAt(network.port) });
    client.on("error", () => {});
    await client.connect();
    onTestFinished(() => client.end());
    let sent = 0;
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    client.query = ((...args: unknown[]) => {
      sent++;
      return query(...args);
    }) as typeof client.query;
    const locks = open(client, { requestTimeoutMs: timeoutMs });
    await locks.mutex("single").run(() => {});
    network.fallSilent();
    sent = 0;
    for (let round = 0; round < 5; round++) {
      await expect(locks.mutex("single").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    }
    await expect(locks.inspect("single")).rejects.toThrow("Pass a Pool");
    expect(sent).toBe(1);
    network.reset();
  });

  test("a pool that is ended before the store gets its connection back, and a warning says so", async () => {
    const pool = new Pool({ connectionString: server.url, max: 3 });
    const [locks, other] = [open(pool), open(poolAt(server.port))];
    const lease = await other.mutex("ended").acquire();
    const waiting = locks.mutex("ended").acquire({ waitMs: 60_000 });
    const failed = expect(waiting).rejects.toMatchObject({
      code: expect.stringMatching(/STORE_FAILURE|CLOSED/),
    });
    await until("it waits", async () => (await other.inspect("ended")).waitingCount === 1);
    const warned = once(process, "warning");
    await pool.end();
    expect(await warned).toMatchObject([{ code: "POOL_ENDED", message: expect.stringContaining("close()") }]);
    await expect(locks.mutex("another").tryAcquire()).rejects.toThrow("The PostgreSQL client was ended");
    await locks.close();
    await failed;
    await lease.release();
  });
});
