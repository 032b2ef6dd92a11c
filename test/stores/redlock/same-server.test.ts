/** A server has one vote, however many clients lead to it, and whenever they come to. */
import { createServer, connect as openSocket, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type HoldfastError, type Lease, type Locks, type Store } from "holdfast";
import type { RedisClient } from "holdfast/redis";
import { type RedlockOptions, redlockStore } from "holdfast/redlock";
import { Cluster, Redis } from "ioredis";
import { createCluster, createSentinel } from "redis";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, freePort, type RedisServer, until } from "../../engines/redis.ts";
import { type Credentials, standaloneClients } from "../../engines/redis-clients.ts";
import { type RedisGroup, startRedisServers } from "../../engines/redis-topologies.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { failure } from "../failure.ts";
import { createUser } from "../redis/rights.ts";

const ttlMs = 20_000;
/** Nobody answers there. */
let nowhere: number;

describe.skipIf(!canRunRedis())("redlock: servers", { timeout: 60_000 }, () => {
  let group: RedisGroup;
  let a: RedisServer;
  let b: RedisServer;

  beforeAll(async () => {
    group = await startRedisServers(4);
    [a, b] = group.servers as [RedisServer, RedisServer];
    nowhere = await freePort();
  }, 60_000);

  beforeEach(async () => void (await Promise.all(group.servers.map((server) => server.command("FLUSHALL")))));
  afterAll(() => group?.stop());

  async function open(
    ports: readonly number[],
    { kind = "ioredis 5", user, ...options }: RedlockOptions & { kind?: string; user?: Credentials } = {},
  ): Promise<{ store: Store; locks: Locks }> {
    const connected = await Promise.all(ports.map((port) => standaloneClients[kind]!({ port }, user)));
    const clients = connected.map(({ client }) => client);
    const store = redlockStore(clients, { nodeTimeoutMs: 5_000, ...options });
    const locks = createLocks(store, { requestTimeoutMs: 8_000, onWarning: () => {} });
    onTestFinished(async () => {
      await locks.close();
      for (const { end } of connected) end();
    });
    return { store, locks };
  }

  test.each(Object.keys(standaloneClients))(
    "two clients of one server are refused by name, through %s",
    async (kind) => {
      const { locks } = await open([a.port, b.port, a.port], { kind });
      const mutex = locks.mutex("twice", { ttlMs });
      const error = await failure(mutex.tryAcquire());
      const named = `clients[0] (127.0.0.1:${a.port}) and clients[2] (127.0.0.1:${a.port})`;
      expect([error.code, error.message]).toEqual(["INVALID_ARGUMENT", expect.stringContaining(named)]);
      // Not only at first.
      expect((await failure(mutex.tryAcquire())).code).toBe("INVALID_ARGUMENT");
    },
  );

  test("one server is no majority of three, also when the third is down", async () => {
    const { locks } = await open([a.port, nowhere, a.port], { nodeTimeoutMs: 1_000 });
    expect((await failure(locks.mutex("alone", { ttlMs }).tryAcquire())).code).toBe("INVALID_ARGUMENT");
  });

  test("servers that their user may not ask for INFO are used, and a warning says what is not known", async () => {
    const uninformed = await createUser(group.servers.slice(0, 3), "uninformed", "-info");
    const codes: string[] = [];
    const listener = (warning: Error & { code?: string }) => codes.push(warning.code ?? "");
    process.on("warning", listener);
    onTestFinished(() => void process.off("warning", listener));
    const ports = group.servers.slice(0, 3).map(({ port }) => port);
    const { locks } = await open(ports, { kind: "node-redis 6", user: uninformed });
    await expect(locks.mutex("uninformed", { ttlMs }).run((lease) => lease.held)).resolves.toBe(true);
    await until("it has warned", async () => codes.length > 0);
    expect(codes).toEqual(["UNKNOWN_SERVERS"]);
  });

  describe.each(["ioredis 5", "node-redis 6"])("through %s", (kind) => {
    const claim = (key: string) => claimRequest(key, { key, ttlMs, wait: false });

    test("a client that comes back to the server of another has no vote until it is back at its own", async () => {
      const relay = await startRelay(a.port);
      const { store } = await open([relay.port, b.port], { kind });
      await expect(store.acquire(claim("before"))).resolves.toMatchObject({ state: "held" });

      relay.leadTo(b.port);
      for (const key of ["astray", "still astray"]) {
        expect((await failure(store.acquire(claim(key)))).code).toBe("STORE_UNAVAILABLE");
      }
      expect((await failure(store.renew([claim("before")]))).code).toBe("STORE_UNAVAILABLE");

      relay.leadTo(a.port);
      await until("both servers serve", async () => (await store.acquire(claim("after"))).state === "held");
      await expect(store.renew([claim("before")])).resolves.toMatchObject([{ state: "held" }]);
    });

    /**
     * The interleaving: a server is asked and does not answer. Its client loses the connection, comes to the server of another client, and by
     * itself sends again what was not answered. That server has been asked by the other client, and would vote twice.
     */
    test("what a client sends again to the server of another does not count", async () => {
      const relay = await startRelay(a.port);
      const { store } = await open([relay.port, b.port], { kind });
      await expect(store.acquire(claim("before"))).resolves.toMatchObject({ state: "held" });
      await b.command("CONFIG", "RESETSTAT");
      a.pause();
      onTestFinished(() => a.resume());
      const renewing = failure(store.renew([claim("before")]));
      await until("both were asked", async () =>
        String(await b.command("INFO", "commandstats")).includes("cmdstat_evalsha:calls=1"),
      );
      relay.leadTo(b.port);
      expect((await renewing).code).toBe("STORE_UNAVAILABLE");
    });
  });

  test("an outage names the servers that failed, and why", async () => {
    const { store } = await open([a.port, nowhere], { nodeTimeoutMs: 300 });
    const request = claimRequest("half", { key: "half", ttlMs, wait: false });
    const where = `Server 2 of 2 (127.0.0.1:${nowhere})`;
    await until("the other one answers", async () => {
      const error = await failure(store.acquire(request));
      expect(error.cause).toMatchObject({ code: "STORE_UNAVAILABLE" });
      return (
        error.message ===
        `1 of 2 servers gave the same answer, and 2 are needed. ${where}: The server did not answer within 300 ms (nodeTimeoutMs).`
      );
    });
  });

  test("a lock takes two messages to each server, and its release one", async () => {
    const three = group.servers.slice(0, 3);
    const { locks } = await open(three.map(({ port }) => port));
    const mutex = locks.mutex("counted", { ttlMs });
    const counts = async () => {
      const texts = await Promise.all(three.map((server) => server.command("INFO", "commandstats")));
      return texts.map((text) =>
        [...String(text).matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)].reduce(
          (sum, [, n]) => sum + Number(n),
          0,
        ),
      );
    };
    /** A majority is enough for an answer, so what the last server is asked may come a moment later. */
    const messagesOf = async (action: () => Promise<unknown>) => {
      await Promise.all(three.map((server) => server.command("CONFIG", "RESETSTAT")));
      await action();
      let before: readonly number[] = [];
      await until("all have been asked", async () => {
        const last = before;
        before = await counts();
        await sleep(50);
        return before.every((count, node) => count > 0 && count === last[node]);
      });
      return before;
    };
    // The first use, and with it the scripts, is over.
    for (let round = 0; round < 3; round++) await messagesOf(() => mutex.run(() => {}));
    const lease: Lease[] = [];
    expect(await messagesOf(async () => lease.push(await mutex.acquire()))).toEqual([2, 2, 2]);
    expect(await messagesOf(() => lease[0]!.release())).toEqual([1, 1, 1]);
  });

  test("four servers go on with one of them down, and not with two", async () => {
    const { servers } = group;
    const kinds = Object.values(standaloneClients);
    const connected = await Promise.all(servers.map((server, node) => kinds[node]!(server)));
    const clients = connected.map(({ client }) => client);
    const store = redlockStore(clients, { nodeTimeoutMs: 1_000 });
    const locks = createLocks(store, { onWarning: () => {} });
    onTestFinished(async () => {
      for (const server of servers.slice(2)) server.resume();
      await locks.close();
      for (const { end } of connected) end();
    });
    const mutex = locks.mutex("even", { ttlMs });
    const first = await mutex.acquire();
    expect(await mutex.tryAcquire()).toBeNull();
    servers[3]!.pause();
    expect(await first.release()).toBe(true);
    const second = await mutex.acquire();
    expect(second.fence).toBeGreaterThan(first.fence);
    expect(await mutex.tryAcquire()).toBeNull();
    servers[2]!.pause();
    const request = claimRequest("too few", { key: "too few", ttlMs, wait: false });
    expect((await failure(store.acquire(request))).code).toBe("STORE_UNAVAILABLE");
  });
});

describe("redlock: what is wrong before any use", () => {
  const lazy = () => new Redis({ lazyConnect: true });

  function refusal(clients: readonly unknown[], options?: object): unknown {
    try {
      return redlockStore(clients as readonly RedisClient[], options);
    } catch (error) {
      const { code, message } = error as HoldfastError;
      return `${code}: ${message}`;
    }
  }

  test.each([
    ["no clients", [], /^INVALID_ARGUMENT: clients must be 1 to 99 Redis clients.*not 0\.$/],
    [
      "a hundred clients",
      Array.from({ length: 100 }, lazy),
      /^INVALID_ARGUMENT: clients must be 1 to 99 .*not 100\.$/,
    ],
    [
      "an address",
      [lazy(), "redis://:secret@host"],
      /^INVALID_ARGUMENT: clients\[1\] must be an ioredis(?!.*secret).*not a string/,
    ],
    [
      "a cluster of ioredis",
      [lazy(), new Cluster([], { lazyConnect: true })],
      /clients\[1\].*not to a cluster/,
    ],
    ["a cluster of node-redis", [createCluster({ rootNodes: [] })], /clients\[0\].*not to a cluster/],
    [
      "a master with sentinels, of ioredis",
      [lazy(), new Redis({ name: "master", sentinels: [{ host: "s" }], lazyConnect: true })],
      /clients\[1\].*sentinels/,
    ],
    [
      "a master with sentinels, of node-redis",
      [createSentinel({ name: "master", sentinelRootNodes: [{ host: "s", port: 1 }] })],
      /clients\[0\].*sentinels/,
    ],
  ])("%s is refused", (_, clients, message) => {
    expect(refusal(clients)).toMatch(message);
  });

  test("a durability that a majority cannot have is refused", () => {
    expect(refusal([lazy()], { durability: "local" })).toMatch(
      /^INVALID_ARGUMENT: durability must be one of "ephemeral", "quorum", not "local"/,
    );
  });
});

/** An address that can come to be another server's, as a name can. */
async function startRelay(port: number) {
  let target = port;
  const open = new Set<Socket>();
  const server = createServer((near) => {
    const far = openSocket(target, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.on("error", () => {});
      from.once("close", () => {
        open.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => {
    for (const socket of open) socket.destroy();
  };
  onTestFinished(() => {
    server.close();
    cut();
  });
  return {
    port: (server.address() as { port: number }).port,
    leadTo(next: number) {
      target = next;
      cut();
    },
  };
}
