/** Several requests at a time over one connection, where the pool's connections can. */
import type { Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { migratePostgres, type PostgresClient, postgresStore } from "holdfast/postgres";
import { Client, Pool, type PoolConfig } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunPgBouncer, startPgBouncer } from "../../engines/pgbouncer.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { anyTime, changeOf, newDriver } from "./new-driver.ts";

describe.skipIf(!canRunPostgres())("postgres: pipelines", () => {
  let server: PostgresServer;
  let admin: Pool;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new Pool({ connectionString: server.url, max: 3 });
    await migratePostgres(admin);
  }, 60_000);

  afterAll(async () => {
    await admin?.end();
    await server?.stop();
  });

  function poolOf(options: PoolConfig = {}): Pool {
    const pool = new Pool({ connectionString: server.url, max: 5, pipeline: true, ...options });
    pool.on("error", () => {});
    onTestFinished(() => pool.end());
    return pool;
  }

  function open(client: PostgresClient) {
    // No sweep comes while requests are counted.
    const store = postgresStore(client, { listener: false, random: () => 0.99 });
    const locks = createLocks(store, { onWarning: () => {} });
    onTestFinished(() => locks.close());
    return locks;
  }

  const keysOf = (name: string, count = 100) => Array.from({ length: count }, (_, nth) => `${name}-${nth}`);

  async function cycles(locks: ReturnType<typeof open>, keys: readonly string[], rounds: number) {
    await Promise.all(
      keys.map(async (key) => {
        for (let round = 0; round < rounds; round++) {
          const lease = await locks.mutex(key).acquire();
          expect(await lease.release()).toBe(true);
        }
      }),
    );
  }

  async function lockRow(key: string) {
    const holder = await admin.connect();
    await holder.query("begin");
    await holder.query("select from holdfast_locks where key = $1 for update", [key]);
    return async () => {
      await holder.query("rollback");
      holder.release();
    };
  }

  test("two halves go over one connection, which is the pool's again afterwards", async () => {
    const pool = poolOf();
    const locks = open(pool);
    await locks.mutex("first").run(() => {});
    let taken = 0;
    let beside = 0;
    pool.on("acquire", () => {
      taken++;
      if (pool.totalCount - pool.idleCount > 1) beside++;
    });
    await cycles(locks, keysOf("halves"), 20);
    // Forty flights of two halves. How often there was none in between depends on the machine, and so does how often one was held
    // up for so long that the next took a connection of its own. Without a pipeline, all of them do.
    expect(taken).toBeLessThan(80);
    expect(beside).toBeLessThan(15);
    expect(pool.waitingCount).toBe(0);
    expect(pool.idleCount).toBe(pool.totalCount);
  });

  test.each([
    {
      what: "a client that keeps a pipeline gets the second half before it has answered the first",
      pipeline: true,
      atATime: 2,
    },
    { what: "a client without one has its requests one after the other", pipeline: false, atATime: 1 },
  ])("$what", async ({ pipeline, atATime }) => {
    const client = new Client({ connectionString: server.url, pipeline });
    await client.connect();
    onTestFinished(() => client.end());
    let underWay = 0;
    let most = 0;
    const query = client.query.bind(client) as unknown as (...args: unknown[]) => Promise<unknown>;
    client.query = (async (...args: unknown[]) => {
      most = Math.max(most, ++underWay);
      return query(...args).finally(() => underWay--);
    }) as unknown as typeof client.query;
    await cycles(open(client), keysOf(`client ${atATime}`), 3);
    expect(most).toBe(atATime);
  });

  test("connections of a pg that knows no pipelines get one request at a time", async () => {
    const pool = poolOf();
    const busy = new Map<object, number>();
    let most = 0;
    pool.on("connect", (connection) => {
      Object.defineProperty(connection, "pipeline", { value: false });
      const query = connection.query.bind(connection) as unknown as (...args: unknown[]) => unknown;
      connection.query = ((...args: unknown[]) => {
        const count = (busy.get(connection) ?? 0) + 1;
        busy.set(connection, count);
        most = Math.max(most, count);
        const result = query(...args);
        const done = () => busy.set(connection, (busy.get(connection) ?? 0) - 1);
        if (result instanceof Promise) result.then(done, done);
        else done();
        return result;
      }) as typeof connection.query;
    });
    const locks = open(pool);
    await locks.mutex("first").run(() => {});
    await cycles(locks, keysOf("old"), 3);
    expect(most).toBeGreaterThan(0);
    // Two are sent before the first connection of a session has shown what it is, and wait there for each other.
    expect(most).toBeLessThanOrEqual(2);
    await until("all are back", async () => pool.idleCount === pool.totalCount);
  });

  test("a request that waits for a row does not hold up those that come later", async () => {
    const driver = await newDriver(poolOf({ max: 5 }));
    onTestFinished(() => driver.close?.());
    const write = async (key: string) => {
      const { results } = await driver.swap(anyTime([changeOf(key, undefined, "old")]));
      return results[0]?.state === "swapped" ? results[0].version : undefined;
    };
    const [held, free] = [await write("held-up"), await write("not-held-up")];
    const letGo = await lockRow("held-up");
    const stuck = driver.swap(anyTime([changeOf("held-up", held, "new")]));
    await sleep(100);
    await expect(driver.swap(anyTime([changeOf("not-held-up", free, "new")]))).resolves.toMatchObject({
      results: [{ state: "swapped" }],
    });
    await letGo();
    await expect(stuck).resolves.toMatchObject({ results: [{ state: "swapped" }] });
  });

  test("one that fails leaves the other one alone, and its connection is not used again", async () => {
    const pool = poolOf();
    const driver = await newDriver(pool);
    onTestFinished(() => driver.close?.());
    const removed: unknown[] = [];
    pool.on("remove", (connection) => removed.push(connection));
    await driver.swap(anyTime([changeOf("first", undefined, "x")]));
    const letGo = await lockRow("first");
    const first = (await driver.read(["first"])).records[0]?.version;
    const nowMs = Math.floor((await driver.read([])).nowMs);
    const late = { changes: [changeOf("first", first, "late")], earliestMs: 0, latestMs: nowMs + 300 };
    const [one, other] = [driver.swap(late), driver.swap(anyTime([changeOf("second", undefined, "y")]))];
    await sleep(400);
    await letGo();
    await expect(one).resolves.toMatchObject({ results: [{ state: "untimely" }] });
    await expect(other).resolves.toMatchObject({ results: [{ state: "swapped" }] });
    await until("it is gone", async () => removed.length === 1);
    await expect(driver.swap(anyTime([changeOf("third", undefined, "z")]))).resolves.toMatchObject({
      results: [{ state: "swapped" }],
    });
  });

  test("a connection that is lost fails what is under way, and nothing else", async () => {
    const pool = poolOf();
    const driver = await newDriver(pool);
    onTestFinished(() => driver.close?.());
    await driver.swap(anyTime([changeOf("cut", undefined, "x")]));
    const version = (await driver.read(["cut"])).records[0]?.version;
    const letGo = await lockRow("cut");
    const under = [
      driver.swap(anyTime([changeOf("cut", version, "y")])),
      driver.swap(anyTime([changeOf("cut-too", undefined, "y")])),
    ].map((swap) =>
      swap.then(
        () => "made",
        (error: { code: string }) => error.code,
      ),
    );
    await until("it waits", async () => {
      const kill = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event_type = 'Lock'";
      return (await admin.query(kill)).rows.length > 0;
    });
    expect(await Promise.all(under)).toEqual(["STORE_UNAVAILABLE", "STORE_UNAVAILABLE"]);
    await letGo();
    await expect(driver.swap(anyTime([changeOf("cut", version, "z")]))).resolves.toMatchObject({
      results: [{ state: "swapped" }],
    });
  });

  /** Two requests one right after the other all the time, each half a round trip after the other one, until told to stop. */
  async function endless(pool: Pool) {
    pool.on("connect", (connection) => {
      const query = connection.query.bind(connection) as unknown as (...args: unknown[]) => unknown;
      connection.query = ((...args: unknown[]) => {
        const result = query(...args);
        // As from a server that is far away.
        return result instanceof Promise ? result.finally(() => sleep(10)) : result;
      }) as typeof connection.query;
    });
    const driver = await newDriver(pool, { listens: false });
    onTestFinished(() => driver.close?.());
    let goesOn = true;
    const loop = async (afterMs: number) => {
      await sleep(afterMs);
      while (goesOn) await driver.swap(anyTime([changeOf("endless", undefined, undefined)]));
    };
    const loops = Promise.all([loop(0), loop(5)]);
    await sleep(50);
    return async () => {
      goesOn = false;
      await loops;
    };
  }

  // A pool with one connection would keep every other caller waiting.
  test("whoever waits for the only connection gets it, however much there is to send", async () => {
    const pool = poolOf({ max: 1 });
    const stop = await endless(pool);
    const first = await Promise.race([pool.query("select 1").then(() => "answered"), sleep(700, "waits")]);
    await stop();
    expect(first).toBe("answered");
  });

  test("the pool gets to replace a connection that is too old, however much there is to send", async () => {
    const pool = poolOf({ maxLifetimeSeconds: 1 });
    let removed = 0;
    pool.on("remove", () => removed++);
    const stop = await endless(pool);
    await sleep(2_500);
    const during = removed;
    await stop();
    expect(during).toBeGreaterThan(0);
  });

  test("a connection that is lost as soon as it is there fails what was asked for, and nothing else", async () => {
    const pool = poolOf();
    const driver = await newDriver(pool, { listens: false });
    onTestFinished(() => driver.close?.());
    for (const isNew of [true, false]) {
      if (isNew) {
        const idle = await pool.connect();
        idle.release(true);
      }
      // Before anything that awaits the connection goes on.
      pool.once("acquire", (connection) => {
        const { stream } = (connection as unknown as { connection: { stream: Socket } }).connection;
        process.nextTick(() => stream.destroy(new Error("reset")));
      });
      const lost = driver.swap(anyTime([changeOf("lost", undefined, undefined)]));
      await expect(lost).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      const next = driver.swap(anyTime([changeOf("lost", undefined, undefined)]));
      await expect(next).resolves.toMatchObject({ results: [{ state: "same" }] });
    }
  });

  test("replies that are mixed up are nobody's, and their connection is not used again", async () => {
    const pool = poolOf();
    let isMixing = false;
    const results: Promise<unknown>[] = [];
    pool.on("connect", (connection) => {
      const query = connection.query.bind(connection) as unknown as (...args: unknown[]) => unknown;
      connection.query = ((...args: unknown[]) => {
        const result = query(...args);
        if (!isMixing || !(result instanceof Promise)) return result;
        const at = results.push(result) - 1;
        // As PgBouncer 1.18 does.
        return until("the other one", async () => results.length === 2).then(() => results[1 - at]);
      }) as typeof connection.query;
    });
    const driver = await newDriver(pool, { listens: false });
    onTestFinished(() => driver.close?.());
    let removed = 0;
    pool.on("remove", () => removed++);
    await driver.swap(anyTime([changeOf("mixed", undefined, "x")]));
    isMixing = true;
    const both = [
      driver.swap(anyTime([changeOf("mixed", undefined, "a conflict")])),
      driver.swap(anyTime([changeOf("mixed-too", undefined, "made")])),
    ];
    const codes = both.map((swap) => expect(swap).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" }));
    await Promise.all(codes);
    isMixing = false;
    await until("it is gone", async () => removed === 1);
    await expect(driver.swap(anyTime([changeOf("mixed-again", undefined, "z")]))).resolves.toMatchObject({
      results: [{ state: "swapped" }],
    });
  });

  test.skipIf(!canRunPgBouncer())("PgBouncer in transaction mode will do", async () => {
    const bouncer = await startPgBouncer(server, 2);
    onTestFinished(() => bouncer.stop());
    const all = [1, 2, 3].map((nth) =>
      cycles(open(poolOf({ connectionString: bouncer.url })), keysOf(`bounced-${nth}`, 40), 20),
    );
    await Promise.all(all);
  });
});
