import { once } from "node:events";
import { createLocks, type Store } from "holdfast";
import { type IoRedisClient, type RedisStoreOptions, redisStore } from "holdfast/redis";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster6 } from "ioredis6";
import { createClient, createClientPool } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { checkVersion } from "../../../src/stores/redis/hello.ts";
import { startProxy } from "../../engines/proxy.ts";
import { canRunRedis, freePort, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { failure } from "../failure.ts";

const request = claimRequest("id", { key: "key", owner: "owner", ttlMs: 1_000, wait: false });

describe.skipIf(!canRunRedis())("redis: at first use", () => {
  let server: RedisServer;
  let client: Redis;

  beforeAll(async () => {
    server = await startRedis();
    client = new Redis(server.port, "127.0.0.1");
  }, 60_000);

  afterAll(async () => {
    client?.disconnect();
    await server?.stop();
  });

  function open(options: RedisStoreOptions): Store {
    const store = redisStore(client, options);
    onTestFinished(() => store.close());
    return store;
  }

  test("clients that disagree on partitions are told both values and the remedy", async () => {
    await open({ keyPrefix: "agree", partitions: 4 }).acquire(request);
    const store = open({ keyPrefix: "agree", partitions: 8 });
    const error = await failure(store.acquire(request));
    expect(error.code).toBe("INVALID_ARGUMENT");
    expect(error.message).toMatch(/8 here and 4 elsewhere.*delete "agree:\{0\}:partitions"/);

    await client.del("agree:{0}:partitions");
    await expect(store.release([request])).resolves.toHaveLength(1);
  });

  test("it takes one round trip more, once", async () => {
    const store = open({ keyPrefix: "once" });
    const calls = async () =>
      Number(/cmdstat_eval:calls=(\d+)/.exec(await client.info("commandstats"))?.[1] ?? 0);
    await store.acquire(request);
    const before = await calls();
    await Promise.all([store.renew([request]), store.release([request])]);
    expect(await calls()).toBe(before);
  });

  /** A store whose subscriptions for owners called "first" begin when the test says so. */
  function slowToListen(keyPrefix: string) {
    let listen = () => {};
    const listening = new Promise<void>((resolve) => {
      listen = resolve;
    });
    const subscribers: Redis[] = [];
    const late: IoRedisClient = Object.assign(client.duplicate(), {
      duplicate(options: object) {
        const subscriber = client.duplicate(options);
        subscribers.push(subscriber);
        const subscribe = subscriber.subscribe.bind(subscriber) as (channel: string) => Promise<unknown>;
        // The very client that the store will disconnect: one in front of it would be told so, and it would connect anew for ever.
        return Object.assign(subscriber, {
          subscribe: (channel: string) =>
            channel.endsWith("first") ? listening.then(() => subscribe(channel)) : subscribe(channel),
        });
      },
    });
    const store = redisStore(late, { keyPrefix });
    onTestFinished(async () => {
      await store.close();
      late.disconnect();
      await until("nobody listens any more", async () => subscribers.every(({ status }) => status === "end"));
    });
    return { store, listen };
  }

  test("waiters queue up in the order in which they asked, whoever listens first", async () => {
    const { store, listen } = slowToListen("turns");
    await store.acquire(request);
    const asked = ["first", "second"].map((owner) => {
      store.onGrant(owner, () => {});
      return store.acquire({ ...request, id: owner, token: owner, owner, wait: true });
    });
    await until("the second listens", async () => {
      const channels = await client.pubsub("CHANNELS", "turns:*");
      return channels.includes("turns:wake:second");
    });
    // Time enough for the second to be sent, if nothing held it back.
    for (let trip = 0; trip < 20; trip++) await client.ping();
    listen();
    await Promise.all(asked);
    const [status] = (await store.look({ key: request.key, maxClaims: 10 })).keys;
    expect(status?.waiting.map(({ id }) => id)).toEqual(["first", "second"]);
  });

  test("a release does not overtake the request that it ends", async () => {
    const { store, listen } = slowToListen("overtaking");
    store.onGrant("first", () => {});
    const waiter = { ...request, owner: "first", wait: true };
    const asked = store.acquire(waiter);
    const released = store.release([waiter]);
    for (let trip = 0; trip < 20; trip++) await client.ping();
    listen();
    expect(await asked).toMatchObject({ state: "held" });
    expect(await released).toEqual([true]);
    const [status] = (await store.look({ key: request.key, maxClaims: 10 })).keys;
    expect(status).toMatchObject({ heldCount: 0, waitingCount: 0 });
  });

  test("keys of another kind under the prefix are told, with the remedy", async () => {
    await client.rpush("foreign:{0}:partitions", "not ours");
    const list = await failure(open({ keyPrefix: "foreign" }).acquire(request));
    expect([list.code, list.message]).toEqual(["STORE_FAILURE", expect.stringContaining("keyPrefix")]);

    await client.set("text:{0}:partitions", "not ours");
    const text = await failure(open({ keyPrefix: "text" }).acquire(request));
    expect([text.code, text.message]).toEqual(["STORE_FAILURE", expect.stringContaining("keyPrefix")]);

    await client.rpush("later:{0}:locks", "not ours");
    const lock = await failure(open({ keyPrefix: "later" }).acquire(request));
    expect([lock.code, lock.message]).toEqual(["STORE_FAILURE", expect.stringContaining("keyPrefix")]);
  });

  test("a client that is not connected, or no longer, is told so", async () => {
    const unopened = createClient({ url: `redis://127.0.0.1:${server.port}` });
    const error = await failure(redisStore(unopened).acquire(request));
    expect([error.code, error.message]).toEqual(["STORE_FAILURE", expect.stringContaining("connect()")]);

    const ended = new Redis(server.port, "127.0.0.1");
    await ended.ping();
    ended.disconnect();
    await once(ended, "end");
    const closed = await failure(redisStore(ended).acquire(request));
    expect([closed.code, closed.message]).toEqual([
      "STORE_FAILURE",
      expect.stringContaining("another client"),
    ]);
  });

  test("a client that was closed is told so", async () => {
    const closed = createClient({ url: `redis://127.0.0.1:${server.port}` });
    await closed.connect();
    const store = redisStore(closed, { keyPrefix: "closed" });
    await store.acquire(request);
    await closed.close();
    const error = await failure(store.acquire(request));
    expect([error.code, error.message]).toEqual([
      "STORE_FAILURE",
      expect.stringMatching(/was closed.*connect\(\) again/),
    ]);

    await closed.connect();
    onTestFinished(() => closed.destroy());
    await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });

    // Closed before anybody could see that it was open.
    const before = createClient({ url: `redis://127.0.0.1:${server.port}` });
    await before.connect();
    await before.close();
    expect((await failure(redisStore(before).acquire(request))).message).toMatch(/connect\(\).*closed/);
  });

  test("a client that is subscribed is told at once to be another one than that", async () => {
    const subscribed = client.duplicate();
    onTestFinished(() => subscribed.disconnect());
    await subscribed.subscribe("news");
    const error = await failure(redisStore(subscribed).acquire(request));
    expect([error.code, error.message]).toEqual([
      "STORE_FAILURE",
      expect.stringMatching(/subscriber mode.*duplicate\(\)/),
    ]);
    await subscribed.unsubscribe("news");
    await expect(redisStore(subscribed, { keyPrefix: "news" }).acquire(request)).resolves.toMatchObject({
      state: "held",
    });
  });

  test.each([
    ["ioredis 5", Cluster],
    ["ioredis 6", Cluster6],
  ])("a cluster client of a server that is in no cluster is told so, through %s", async (_, Client) => {
    const { port } = server;
    const astray = new Client([
      { host: "127.0.0.1", port },
      { host: "localhost", port },
    ]);
    astray.on("error", () => {});
    onTestFinished(() => astray.disconnect());
    const store = redisStore(astray);
    // Once while it looks for the cluster, and once when it has found none.
    for (let round = 0; round < 2; round++) {
      const error = await failure(store.acquire(request));
      expect([error.code, error.message]).toEqual([
        "STORE_FAILURE",
        expect.stringMatching(/no server accepted the cluster client.*Redis of ioredis/i),
      ]);
      expect(error.cause).toMatchObject({ message: expect.stringContaining("cluster support disabled") });
    }
  });

  test("a client that connects only when used is connected", async () => {
    const lazy = new Redis(server.port, "127.0.0.1", { lazyConnect: true });
    onTestFinished(() => lazy.disconnect());
    const locks = createLocks(redisStore(lazy));
    await expect(locks.mutex("lazy").run((lease) => lease.held)).resolves.toBe(true);
    await locks.close();
  });

  test("node-redis 5 is served and woken as it comes, when it tells the server what it is", async () => {
    const [holder, waiter] = await Promise.all(
      [1, 2].map(async () => {
        const usual = createClient5({ socket: { port: server.port, host: "127.0.0.1" } });
        await usual.on("error", () => {}).connect();
        const locks = createLocks(redisStore(usual, { keyPrefix: "usual" }));
        onTestFinished(async () => {
          await locks.close();
          usual.destroy();
        });
        return locks;
      }),
    );
    const lease = await holder!.mutex("usual").acquire();
    // Its heartbeat is due only after 20 s.
    const waiting = waiter!.mutex("usual", { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    await until("somebody waits", async () => (await holder!.inspect("usual")).waitingCount === 1);
    expect(await lease.release()).toBe(true);
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    expect(await next.release()).toBe(true);
  });

  test("a server that is too old is told to be upgraded, and is left as it was", async () => {
    const proxy = await startProxy(server.port);
    onTestFinished(() => proxy.stop());
    // What the server says of itself is made to say something else, in as many letters.
    let changed = 0;
    proxy.decide(({ direction, bytes }) => {
      const at = bytes.indexOf("redis_version:");
      if (direction === "reply" && at >= 0) changed += bytes.write("6.0", at + "redis_version:".length) / 3;
      return "pass";
    });
    const old = new Redis(proxy.port, "127.0.0.1", { enableReadyCheck: false });
    onTestFinished(() => old.disconnect());
    const error = await failure(redisStore(old, { keyPrefix: "old" }).acquire(request));
    expect([error.code, error.message]).toEqual([
      "UNSUPPORTED",
      expect.stringMatching(/^Redis 6\.0.* is too old\. Upgrade .*6\.2/),
    ]);
    expect(changed).toBe(1);
    expect(await client.exists("old:{0}:locks")).toBe(0);
  });

  test("a server that cannot be reached is an outage", async () => {
    const nobody = new Redis(await freePort(), "127.0.0.1", { maxRetriesPerRequest: 1 });
    nobody.on("error", () => {});
    onTestFinished(() => nobody.disconnect());
    expect((await failure(redisStore(nobody).acquire(request))).code).toBe("STORE_UNAVAILABLE");
  });

  test("numbers that the client hands out as text are read", async () => {
    const texts = new Redis(server.port, "127.0.0.1", { stringNumbers: true });
    onTestFinished(() => texts.disconnect());
    const store = redisStore(texts, { keyPrefix: "texts" });
    await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });
    await expect(store.acquire({ ...request, id: "other" })).resolves.toMatchObject({ state: "refused" });
    await expect(store.look({ key: "key", maxClaims: 5 })).resolves.toMatchObject({
      keys: [{ heldCount: 1 }],
    });
    await expect(store.release([request])).resolves.toEqual([true]);
  });
});

describe("redis: what is wrong before any use", () => {
  const lazy = () => new Redis({ lazyConnect: true });

  test.each([
    ["nothing", undefined, "undefined"],
    ["an address", "redis://:secret@127.0.0.1", "a string"],
    ["another kind of object", { query: () => {} }, "an object with other methods"],
    ["a pipeline", lazy().pipeline(), "an object of class Pipeline"],
    ["a transaction", createClient().multi(), "an object of class RedisClientMultiCommand"],
    ["a pool", createClientPool(), "an object of class RedisClientPool"],
    ["a promise", Promise.resolve(lazy()), "an object of class Promise"],
    ["a class", Redis, "the function or class Redis"],
    ["a list", [lazy()], "a list"],
  ])("a client must be one, not %s", (_, client, described) => {
    const message = `client must be an ioredis Redis or Cluster, or a node-redis client, cluster or sentinel, not ${described}. Pass the client itself.`;
    expect(() => redisStore(client as never)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message }),
    );
  });

  test.each([
    [null, "null"],
    ["holdfast", '"holdfast"'],
    [["holdfast"], "a list"],
  ])("options must be an object, not %j", (options, described) => {
    expect(() => redisStore(lazy(), options as never)).toThrow(
      expect.objectContaining({
        code: "INVALID_ARGUMENT",
        message: expect.stringMatching(`must be an object with .*, not ${described}\\.$`),
      }),
    );
  });

  test("a client that changes keys is refused", () => {
    const client = new Redis({ keyPrefix: "app:", lazyConnect: true });
    expect(() => redisStore(client)).toThrow(/Pass keyPrefix to the store instead/);
  });

  test.each([
    { partitions: 0 },
    { partitions: 1_025 },
    { partitions: 1.5 },
    { maxWaiters: -1 },
    { keyPrefix: "" },
    { keyPrefix: "a{b}" },
  ])("%j is outside its range", (options) => {
    const client = new Redis({ lazyConnect: true });
    expect(() => redisStore(client, options)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });
});

describe("redis: the version", () => {
  test.each([
    "redis_version:6.2.0",
    "redis_version:7.0.15",
    "redis_version:10.1.2",
    "redis_version:255.255.255",
    "",
  ])("'%s' will do, or is not known", (info) =>
    expect(checkVersion(`# Server\r\n${info}\r\nredis_mode:standalone\r\n`)).toBeUndefined(),
  );

  test.each(["5.0.14", "6.0.20", "2.8.0"])("%s is too old", (version) => {
    expect(() => checkVersion(`# Server\r\nredis_version:${version}\r\n`)).toThrow(
      expect.objectContaining({
        code: "UNSUPPORTED",
        message: expect.stringMatching(/Upgrade .*6\.2.*7\.2/),
      }),
    );
  });
});
