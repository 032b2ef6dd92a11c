/** Connections that a network has forgotten: nothing comes back over them, and no end is told. */
import { createLocks } from "holdfast";
import type { MysqlConnection } from "holdfast/mysql";
import { createConnection, type Pool, type PoolOptions } from "mysql2/promise";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { forgetful } from "../forgetful-network.ts";
import { openSockets } from "../open-sockets.ts";
import { useDatabase } from "./database.ts";

const timeoutMs = 500;

describe.skipIf(!canRunMariadb())("mysql: silent connections", { timeout: 30_000 }, () => {
  const database = useDatabase();

  const urlAt = (port: number) => database.server.url.replace(`:${database.server.port}`, `:${port}`);

  /** Connecting has no limit of its own that would end within the test. */
  function poolAt(port: number, options: PoolOptions = {}): Pool {
    return database.pool({ uri: urlAt(port), connectTimeout: 60_000, ...options });
  }

  function open(client: Pool, requestTimeoutMs = 3 * timeoutMs) {
    const locks = createLocks(database.store(client, { requestTimeoutMs: timeoutMs }), {
      requestTimeoutMs,
      onWarning: () => {},
    });
    onTestFinished(() => locks.close());
    return locks;
  }

  /** Every connection of the pool, at once. */
  function useAll(pool: Pool, count: number) {
    return Promise.all(Array.from({ length: count }, () => pool.query("select sleep(0.05)")));
  }

  test.each([1, 2, 4])(
    "a pool of %d is whole again when the network is, and nothing piles up meanwhile",
    async (limit) => {
      const network = await forgetful(database.server.port);
      const pool = poolAt(network.port, { connectionLimit: limit });
      const locks = open(pool, timeoutMs);
      await locks.mutex("warm").run(() => {});
      let queued = 0;
      pool.on("enqueue", () => queued++);
      network.fallSilent();
      for (let round = 0; round < 4; round++) {
        const asked = ["a", "b", "c", "d", "e", "f"].map((key) => locks.mutex(key).tryAcquire());
        for (const { status } of await Promise.allSettled(asked)) expect(status).toBe("rejected");
        expect(openSockets(network.port)).toBeLessThanOrEqual(limit);
      }
      expect(queued).toBeLessThanOrEqual(6 * limit);
      network.comeBack();
      const after = createLocks(database.store(pool, { requestTimeoutMs: timeoutMs }), {
        requestTimeoutMs: 3 * timeoutMs,
      });
      expect(await (await after.mutex("after").tryAcquire())?.release()).toBe(true);
      await after.close();
      await useAll(pool, limit);
      expect(openSockets(network.port)).toBeLessThanOrEqual(limit);
    },
  );

  test("idle connections that were forgotten with one that is found silent are not tried one after the other", async () => {
    const network = await forgetful(database.server.port);
    const pool = poolAt(network.port, { connectionLimit: 10 });
    const locks = open(pool);
    await locks.mutex("idle").run(() => {});
    await useAll(pool, 10);
    network.fallSilent();
    network.comeBack();
    expect(await (await locks.mutex("idle").tryAcquire())?.release()).toBe(true);
    expect(openSockets(network.port)).toBeLessThanOrEqual(10);
  });

  test("a silent single connection is an outage and no contention, and no requests pile up behind it", async () => {
    const network = await forgetful(database.server.port);
    const connection = await createConnection(urlAt(network.port));
    connection.on("error", () => {});
    onTestFinished(() => connection.destroy());
    let sent = 0;
    const client: MysqlConnection = {
      query(query) {
        sent++;
        return connection.query(query as never) as Promise<[unknown, unknown]>;
      },
    };
    const locks = open(client as Pool, timeoutMs);
    await locks.mutex("single").run(() => {});
    network.fallSilent();
    sent = 0;
    for (let round = 0; round < 5; round++) {
      await expect(locks.mutex("single").tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    }
    await expect(locks.inspect("single")).rejects.toThrow("Pass a pool");
    expect(sent).toBeLessThanOrEqual(2);
    network.reset();
    await until("it is closed", async () => openSockets(network.port) === 0);
  });
});
