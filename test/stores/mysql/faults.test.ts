/** What all stores must survive, and what becomes of a connection that is left without an answer. */
import { createLocks } from "holdfast";
import { describe, expect, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { proxied, serverFaults } from "../fault-suite.ts";
import { useDatabase } from "./database.ts";

describe.skipIf(!canRunMariadb())("mysql: faults", { timeout: 40_000 }, () => {
  const database = useDatabase();

  function urlAt(port: number): string {
    const { server } = database;
    return server.url.replace(`:${server.port}`, `:${port}`);
  }

  serverFaults({
    connect: ({ port = database.server.port, clock } = {}) => database.participant(urlAt(port), clock),
    holder: { store: "mysql", target: () => database.server.url },
    stampsFences: true,
    engine: () => database.server,
    forget: () => database.admin("truncate table holdfast_locks"),
    swap: { contains: () => "_swap_v1", cutAfterBytes: 100 },
  });

  test("a network that falls silent is an outage, and the connection that it leaves without an answer is replaced", async () => {
    const proxy = await proxied(database.server.port);
    const uri = urlAt(proxy.port);
    const store = database.store(database.pool({ uri, connectionLimit: 1, connectTimeout: 1_000 }), {
      requestTimeoutMs: 1_000,
    });
    const mutex = createLocks(store, { requestTimeoutMs: 2_000 }).mutex("silent");
    await (await mutex.acquire()).release();

    const silent = new Set<unknown>();
    proxy.decide(({ connection }) => {
      silent.add(connection);
      return "hold";
    });
    await expect(mutex.tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(silent.size).toBeGreaterThan(0);
    proxy.decide(({ connection }) => (silent.has(connection) ? "hold" : "pass"));
    await until("another connection serves", async () => {
      const lease = await mutex.tryAcquire();
      return lease?.release() ?? false;
    });
  });
});
