/** What is told at creation and at first use, and that nothing is half-written then. */
import { setTimeout as sleep } from "node:timers/promises";
import { Etcd3 } from "etcd3";
import { createLocks, type ErrorCode, type HoldfastError, type Locks } from "holdfast";
import { type EtcdClient, type EtcdStoreOptions, etcdStore } from "holdfast/etcd";
import { remoteStore } from "holdfast/remote";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { startLockServer } from "../../server/lock-server.ts";
import { testDamagedRecords } from "../damaged-records.ts";
import { failure } from "../failure.ts";
import { connect, locksAt } from "./participants.ts";

describe("etcd: what is given to it", () => {
  const client = new Etcd3({ hosts: "http://127.0.0.1:1" });
  afterAll(() => client.close());

  test.each([
    ["prefix", ""],
    ["prefix", "a\n"],
    ["prefix", "p".repeat(129)],
    ["prefix", 7],
    ["maxWaiters", -1],
    ["maxWaiters", 100_001],
    ["maxTxnOps", 63],
    ["maxTxnOps", 128.5],
    ["maxConcurrentRequests", 0],
    ["requestTimeoutMs", 99],
    ["giveUpMs", 0],
    ["keepIdleMs", 5_000],
    ["clockDrift", 0.2],
    ["ttl", 5],
  ])("%s cannot be %j", (name, value) => {
    const options = { [name]: value } as EtcdStoreOptions;
    expect(() => etcdStore(client, options)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining(name) }),
    );
  });

  test.each([
    ["nothing", undefined, "kv.range"],
    ["another kind of client", { get() {}, set() {} }, "kv.range"],
    ["a client without leases", { kv: { range() {}, txn() {} } }, "leaseClient.leaseGrant"],
  ])("%s is no client", (_, given, missing) => {
    expect(() => etcdStore(given as unknown as EtcdClient)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining(missing) }),
    );
  });

  test("a port where nobody is stays in what is told, also while the client keeps away from it", async () => {
    const away = new Etcd3({ hosts: "http://127.0.0.1:1" });
    onTestFinished(() => away.close());
    const store = etcdStore(away);
    onTestFinished(() => store.close());
    const told: HoldfastError[] = [];
    await until("the client keeps away", async () => {
      told.push(await failure(store.acquire(claimRequest("a", { ttlMs: 30_000 }))));
      return told.at(-1)?.message.includes("avoids members") === true;
    });
    const { cause, message } = told.at(-1) as HoldfastError;
    expect(message).toMatch(/ECONNREFUSED 127\.0\.0\.1:1\.$/);
    expect(cause).toBe(told.at(-2)?.cause);
  });

  test("a namespace of a client is refused, since its prefix would be ignored", () => {
    const namespace = client.namespace("app/") as unknown as EtcdClient;
    expect(() => etcdStore(namespace)).toThrow(/not a namespace/);
  });
});

describe.skipIf(!canRunEtcd())("etcd: first use", () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server.stop());

  async function failureOf(call: Promise<unknown>, code: ErrorCode): Promise<string> {
    const error = await failure(call);
    expect(error.code).toBe(code);
    return error.message;
  }

  async function withClient<T>(use: (client: Etcd3) => PromiseLike<T>): Promise<T> {
    const client = connect(server.url);
    const result = await use(client);
    client.close();
    return result;
  }

  function keysBelow(prefix: string): Promise<string[]> {
    return withClient((client) => client.getAll().prefix(`${prefix}/`).keys());
  }

  test("a ttl below the shortest lease is refused with what to do, each time, and leaves nothing", async () => {
    const locks = locksAt(server.url, { prefix: "short" });
    for (const ttlMs of [900, 1_000, 500]) {
      const message = await failureOf(locks.mutex("k", { ttlMs }).tryAcquire(), "INVALID_ARGUMENT");
      expect(message).toContain("at least 1001");
      expect(message).toContain("--election-timeout");
    }
    expect(await keysBelow("short")).toEqual([]);
    expect(await locks.mutex("k", { ttlMs: 1_001 }).tryRun(() => 1)).toEqual({ ran: true, value: 1 });
  });

  /** A client of a lock server in front of a store of its own. */
  async function locksBehindServer(prefix: string): Promise<Locks> {
    const client = connect(server.url);
    const store = etcdStore(client, { prefix });
    const lockServer = await startLockServer({ store });
    const locks = createLocks(remoteStore(lockServer.url), { onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      await lockServer.stop({ graceMs: 0 });
      await store.close();
      client.close();
    });
    return locks;
  }

  test.each([
    ["the store", async (prefix: string) => locksAt(server.url, { prefix })],
    ["a lock server", locksBehindServer],
  ])(
    "an extension below the shortest lease is refused at once through %s, and no lease suffers",
    async (by, open) => {
      const locks = await open(`short extension through ${by}`);
      const lease = await locks.mutex("k", { ttlMs: 2_000, renew: false }).acquire();
      const beside = await locks.mutex("beside", { ttlMs: 5_000 }).acquire();
      const [{ expiresAtMs }, besideUntilMs] = [lease, beside.expiresAtMs];
      // Asked for again and again, it would be an outage after 5 s, or lost before that.
      const message = await failureOf(lease.extend(500), "INVALID_ARGUMENT");
      expect(message).toContain("at least 1001");
      expect(Math.abs(lease.expiresAtMs - expiresAtMs)).toBeLessThan(5);
      await until("the other is renewed", async () => beside.expiresAtMs > besideUntilMs + 1_000);
      expect(beside.held).toBe(true);
    },
  );

  test("a lease that is extended beyond its class hangs on a longer one", async () => {
    const locks = locksAt(server.url, { prefix: "longer" });
    const lease = await locks.mutex("k", { ttlMs: 2_000, renew: false }).acquire();
    await lease.extend(60_000);
    const [key] = (await keysBelow("longer")).filter((name) => name.endsWith(".60"));
    expect(key).toBeDefined();
    await sleep(3_000);
    expect(lease.held).toBe(true);
    expect(await locksAt(server.url, { prefix: "longer" }).mutex("k").tryAcquire()).toBeNull();
  });

  test("a server that is too old is refused, before anything is written", async () => {
    const client = connect(server.url);
    onTestFinished(() => client.close());
    const { kv, leaseClient, watchClient } = client;
    // There is none to be had here, so it only says so.
    const maintenance = { status: async () => ({ version: "3.3.27" }) };
    const store = etcdStore({ kv, leaseClient, watchClient, maintenance }, { prefix: "old" });
    const request = claimRequest("a", { ttlMs: 30_000 });
    expect(await failureOf(store.acquire(request), "UNSUPPORTED")).toContain("3.4");
    expect(await keysBelow("old")).toEqual([]);
    await store.close();
  });

  testDamagedRecords({
    put: (key, text) => withClient((client) => client.put(`holdfast/r/${key}`).value(text)),
    textOf: (key) => withClient((client) => client.get(`holdfast/r/${key}`).string()),
    open() {
      const client = connect(server.url);
      onTestFinished(() => client.close());
      return etcdStore(client);
    },
  });

  test("a client that was closed before the store is told of", async () => {
    const client = connect(server.url);
    const store = etcdStore(client);
    client.close();
    const message = await failureOf(store.acquire(claimRequest("a", { ttlMs: 30_000 })), "STORE_FAILURE");
    expect(message).toContain("Close the store first");
    await store.close();
  });

  test("a server whose space is used up is unavailable, and says what to do about it", async () => {
    const small = await startEtcd(["--quota-backend-bytes", "2000000"]);
    onTestFinished(() => small.stop());
    const client = connect(small.url);
    onTestFinished(() => client.close());
    const fill = async () => {
      await client.put("filling").value("x".repeat(500_000));
      return false;
    };
    let full = false;
    await until("it is full", () => fill().catch(() => (full = true))).catch(() => {});
    expect(full).toBe(true);
    const locks = createLocks(etcdStore(client, { requestTimeoutMs: 1_000 }), { requestTimeoutMs: 2_000 });
    const message = await failureOf(locks.mutex("k").tryAcquire(), "STORE_UNAVAILABLE");
    expect(message).toContain("compact and defragment it");
    await locks.close();
  });

  // The client takes a stream that is cancelled for a failure of the server, and breaks off what others ask of it.
  test("closing a store disturbs nobody else who uses the same client", async () => {
    const client = new Etcd3({ hosts: server.url });
    onTestFinished(() => client.close());
    const other = etcdStore(client);
    const request = claimRequest("other", { key: "undisturbed", ttlMs: 30_000 });
    await other.acquire(request);
    const owners = ["a", "b", "c", "d", "e", "f"];
    const stores = owners.map((owner) => {
      const store = etcdStore(client);
      store.onGrant(owner, () => {});
      return store;
    });
    await Promise.all(
      stores.map((store, index) => {
        const owner = owners[index]!;
        return store.acquire(claimRequest(owner, { key: owner, owner, ttlMs: 30_000 }));
      }),
    );
    await Promise.all(stores.map((store) => store.close()));
    for (let beat = 0; beat < 20; beat++) {
      expect(await other.renew([request])).toMatchObject([{ state: "held" }]);
    }
    await other.close();
  });

  test("nothing is left of a closed store but what ends by itself", async () => {
    const client = connect(server.url);
    const store = etcdStore(client, { prefix: "closed" });
    const end = store.onGrant("me", () => {});
    await store.acquire(claimRequest("a", { owner: "me", ttlMs: 2_000 }));
    await store.close();
    end();
    await until("its lease has ended", async () => {
      const keys = await keysBelow("closed");
      return !keys.some((key) => key.startsWith("closed/a/"));
    });
    // The client is the caller's, and goes on.
    expect(await client.get("anything").string()).toBeNull();
    client.close();
  });
});
