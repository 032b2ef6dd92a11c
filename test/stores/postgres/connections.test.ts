/** How requests use the connections of a pool, and a single client. */
import type { Socket } from "node:net";
import { migratePostgres } from "holdfast/postgres";
import { Client, Pool, type PoolConfig } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { anyTime, changeOf, newDriver } from "./new-driver.ts";

describe.skipIf(!canRunPostgres())("postgres: connections", () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres();
    const admin = new Client({ connectionString: server.url });
    await admin.connect();
    await migratePostgres(admin);
    await admin.end();
  }, 60_000);

  afterAll(() => server?.stop());

  async function open(options: PoolConfig = {}) {
    const pool = new Pool({ connectionString: server.url, max: 5, ...options });
    pool.on("error", () => {});
    const driver = await newDriver(pool, { listens: false });
    onTestFinished(async () => {
      await driver.close?.();
      await pool.end();
    });
    return { pool, driver };
  }

  test("changes are answered in the order of the request", async () => {
    const { driver } = await open();
    const keys = ["order b", "order \u{10000}", "order a", "order \u{ffff}"];
    const write = () => driver.swap(anyTime(keys.map((key, nth) => changeOf(key, undefined, `${nth}`))));
    expect((await write()).results.map(({ state }) => state)).toEqual(Array(4).fill("swapped"));
    const { results } = await write();
    expect(results).toEqual(
      keys.map((_, nth) => ({ state: "conflict", current: { version: expect.any(String), text: `${nth}` } })),
    );
  });

  test("a connection is the pool's again after each request, and one with a failed request is not used again", async () => {
    const { pool, driver } = await open({ max: 1 });
    let removed = 0;
    pool.on("remove", () => removed++);
    await driver.read(["k"]);
    expect([pool.idleCount, removed]).toEqual([1, 0]);
    const malformed = { ...changeOf("k", undefined, "x"), keepUntilMs: Number.NaN };
    await expect(driver.swap(anyTime([malformed]))).rejects.toMatchObject({ code: "STORE_FAILURE" });
    await until("it is gone", async () => removed === 1);
    await driver.read(["k"]);
  });

  test("a connection that is lost as soon as it is there fails one request, and nothing else", async () => {
    const { pool, driver } = await open();
    for (const isNew of [true, false]) {
      if (isNew) {
        const idle = await pool.connect();
        idle.release(true);
      }
      // Before the store's await of the connection continues.
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

  test("replies to other requests are not believed, and their connections are not used again", async () => {
    const { pool, driver } = await open();
    const queries: Promise<unknown>[] = [];
    let isMixing = false;
    pool.on("acquire", (connection) => {
      if (!isMixing) return;
      const query = connection.query.bind(connection) as unknown as (...args: unknown[]) => Promise<unknown>;
      connection.query = ((...args: unknown[]) => {
        const at = queries.push(query(...args)) - 1;
        // As PgBouncer 1.18 does.
        const both = until("the other one", async () => queries.length === 2).then(() =>
          Promise.all(queries),
        );
        return both.then((replies) => replies[1 - at]);
      }) as unknown as typeof connection.query;
    });
    let removed = 0;
    pool.on("remove", () => removed++);
    await driver.swap(anyTime([changeOf("mixed", undefined, "x")]));
    isMixing = true;
    const both = [
      driver.swap(anyTime([changeOf("mixed", undefined, "a conflict")])),
      driver.swap(anyTime([changeOf("mixed-too", undefined, "made")])),
    ];
    await Promise.all(both.map((swap) => expect(swap).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" })));
    isMixing = false;
    await until("both are gone", async () => removed === 2);
    await expect(driver.swap(anyTime([changeOf("mixed-again", undefined, "z")]))).resolves.toMatchObject({
      results: [{ state: "swapped" }],
    });
  });
});
