/** What is more or larger than one request can carry goes in several, and is in nobody's way. */
import { Etcd3 } from "etcd3";
import { systemClock } from "holdfast";
import { type EtcdStoreOptions, etcdStore } from "holdfast/etcd";
import { describe, expect, onTestFinished, test } from "vitest";
import { checkClient } from "../../../src/stores/etcd/client.ts";
import { Connection } from "../../../src/stores/etcd/connection.ts";
import { EtcdDriver } from "../../../src/stores/etcd/driver.ts";
import { EtcdLease } from "../../../src/stores/etcd/etcd-lease.ts";
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

  test("a batch as large as it may be fits into a request, whatever its characters", () => {
    const { batchBytes = 0, recordBytes = 0 } = new EtcdDriver({
      client: {} as never,
      prefix: "holdfast",
      maxTxnOps: 128,
      requestTimeoutMs: 5_000,
      keepIdleMs: 300_000,
      clockDrift: 0.02,
      clock: systemClock,
      random: () => 0.5,
    }).limits;
    // It is counted in characters, and one record may come on top. Keys and numbers take the rest.
    expect(3 * batchBytes + recordBytes).toBeLessThan(1.5 * 1_024 * 1_024 - 128 * 1_024);
  });

  test("a server whose space is used up serves who has a lease there already, one key or several at a time", async () => {
    const { connect, open } = await start(["--quota-backend-bytes", "2000000"]);
    const store = open();
    const mine = attempt("mine", "mine", { ttlMs: 10_000 });
    expect(await store.acquire(mine)).toMatchObject({ state: "held" });
    // Two records that the process knows, so that what is asked of both goes jointly.
    const both = [attempt("a", "a"), attempt("b", "b")] as const;
    await Promise.all(both.map((claim) => store.acquire(claim)));
    await store.release(both);
    const filler = connect();
    checkClient(filler);
    const lease = new EtcdLease({
      connection: new Connection(filler, new Keys("holdfast"), systemClock, 5_000),
      seconds: 60,
      clockDrift: 0.02,
      onTooShort: () => new Error("too short"),
      onEnd: () => {},
    });
    await lease.start();
    const isRefused = async (bytes: number) => {
      // One that is refused keeps a client away from the server for a while.
      const put = connect().put(`${bytes}-${Math.random()}`).value("x".repeat(bytes));
      return put.then(
        () => false,
        () => true,
      );
    };
    // The alarm is raised a moment after the first refusal: then nothing is written any more, however small.
    await until("much is refused", () => isRefused(200_000));
    await until("little is refused", () => isRefused(1));

    expect(await store.renew([mine])).toMatchObject([{ state: "held" }]);
    const asked = await Promise.all(both.map((claim) => store.acquire(claim)));
    expect(asked).toMatchObject([{ state: "held" }, { state: "held" }]);
    expect(await store.renew([mine, ...both])).toMatchObject(Array(3).fill({ state: "held" }));
    expect(await store.release([mine, ...both])).toEqual([true, true, true]);
    // Whoever has no lease there is told.
    const newcomer = open().acquire(attempt("new", "new"));
    await expect(newcomer).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    // Nor does an answer that was lost there end all that a lease keeps.
    lease.doubt(lease.epoch);
    await lease.settle();
    expect([lease.isDoubtful, lease.hasEnded]).toEqual([false, false]);
  });
});
