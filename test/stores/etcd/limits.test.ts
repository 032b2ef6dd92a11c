/** What is more or larger than one request can carry goes in several, and is in nobody's way. */
import { Etcd3 } from "etcd3";
import { systemClock } from "holdfast";
import { type EtcdStoreOptions, etcdStore } from "holdfast/etcd";
import { describe, expect, onTestFinished, test } from "vitest";
import { checkClient } from "../../../src/stores/etcd/client.ts";
import { Connection } from "../../../src/stores/etcd/connection.ts";
import { Keys } from "../../../src/stores/etcd/keys.ts";
import { Sweeping } from "../../../src/stores/etcd/sweeping.ts";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, startEtcd } from "../../engines/etcd.ts";
import { attempt, wait } from "../cas/scene.ts";
import { late } from "./participants.ts";

describe.skipIf(!canRunEtcd())("etcd: limits", { timeout: 60_000 }, () => {
  /** A server, and stores with the client as it comes, until the test is over. */
  async function start(settings: readonly string[] = []) {
    const server = await startEtcd([...settings]);
    const ends: (() => unknown)[] = [];
    onTestFinished(async () => {
      for (const end of ends) await end();
      await server.stop();
    });
    const connect = () => {
      const client = new Etcd3({ hosts: server.url });
      ends.push(() => client.close());
      return client;
    };
    const open = (options: EtcdStoreOptions = {}) => {
      const store = etcdStore(connect(), { ...late, ...options });
      ends.unshift(() => store.close());
      return store;
    };
    return { connect, open };
  }

  test("claims with more different ttls than a request can compare are renewed, and so is what goes with them", async () => {
    const { open } = await start();
    const store = open();
    const ttls = Array.from({ length: 148 }, (_, n) => (n < 80 ? 1_000 * (n + 20) : 10_000 * (n - 70)));
    const claims = ttls.map((ttlMs, n) => attempt("readers", `r${n}`, { ttlMs, limit: 1_000_000 }));
    const other = attempt("another", "o");
    const acquired = await Promise.all([...claims, other].map((claim) => store.acquire(claim)));
    expect(acquired.filter(({ state }) => state !== "held")).toEqual([]);
    const [renewed, beside] = await Promise.all([store.renew(claims), store.renew([other])]);
    expect([...renewed, ...beside].filter(({ state }) => state !== "held")).toEqual([]);
    // Nobody was promised more than was asked for.
    for (const [n, claim] of renewed.entries())
      expect(claim.state === "held" && claim.expiresInMs).toBeLessThanOrEqual(ttls[n] ?? 0);
    expect(await store.release(claims)).not.toContain(false);
  });

  test("a server that takes few operations at once is asked in several requests", async () => {
    const { open } = await start(["--max-txn-ops=64"]);
    const others = Array.from({ length: 70 }, () => open({ maxTxnOps: 64 }));
    const store = open({ maxTxnOps: 64 });
    for (const [n, theirs] of others.entries())
      expect(await theirs.acquire(attempt("k", `r${n}`, { limit: 70 }))).toMatchObject({ state: "held" });
    expect(await store.look({ key: "k", maxClaims: 1 })).toMatchObject({ keys: [{ heldCount: 70 }] });
    expect(await store.acquire(attempt("k", "one-more", { limit: 70 }))).toMatchObject({ state: "refused" });
    const waiter = wait("k", "waiter", { limit: 70, owner: "me" });
    expect(await store.acquire(waiter)).toMatchObject({ state: "waiting" });
    expect(await store.renew([waiter])).toMatchObject([{ state: "waiting" }]);
  });

  test("records that are larger together than an answer may be are listed and removed, and hold up nobody", async () => {
    const { connect, open } = await start();
    const keys = Array.from({ length: 20 }, (_, n) => `large-${n}`);
    const dying = open({ maxWaiters: 10_000 });
    for (const key of keys) {
      const claims = Array.from({ length: 4_000 }, (_, n) => wait(key, `waiter-${n}`, { ttlMs: 60_000 }));
      await Promise.all(claims.map((claim) => dying.acquire(claim)));
    }
    const client = connect();
    checkClient(client);
    const { kvs } = await client.kv.range({ key: Buffer.from("holdfast/r/large-0") });
    expect((kvs[0]?.value.length ?? 0) * keys.length).toBeGreaterThan(4 * 1_024 * 1_024);
    const store = open();
    const { keys: listed } = await store.look({ prefix: "large-", limit: 100, maxClaims: 0 });
    expect(listed.map(({ key }) => key).sort()).toEqual(keys.sort());
    // As when its process is gone, and its lease with it.
    await dying.close();
    await client.delete().prefix("holdfast/a/");

    const connection = new Connection(client, new Keys("holdfast"), systemClock, 5_000);
    const sweeping = new Sweeping(connection, { keepIdleMs: 1_000, random: () => 0.5, atOnce: 100 });
    const left = () => client.getAll().prefix("holdfast/r/large-").keys();
    expect(await left()).toHaveLength(keys.length);
    await until("they are removed", async () => {
      await sweeping.sweep();
      return (await left()).length === 0;
    });
    // The client has not taken anything for a failure of the server.
    expect(await store.acquire(attempt("beside", "b"))).toMatchObject({ state: "held" });
  });
});
