import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { fencedScript, fencedSet, fenceMarkKey, MAX_FENCE } from "holdfast/fencing";
import type { RedisClient } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../engines/redis.ts";
import { clusterClients, standaloneClients } from "../engines/redis-clients.ts";
import { type RedisCluster, startRedisCluster } from "../engines/redis-topologies.ts";
import { checkRegister } from "./register-model.ts";

const stale = { code: "STALE_FENCE" };
/** A script that runs through every client that the store takes. */
const get = fencedScript("return redis.call('GET', KEYS[1])");

describe.skipIf(!canRunRedis())("redis: fenced writes", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);
  afterAll(() => server?.stop());

  describe.each(Object.entries(standaloneClients))("through %s", (_, connect) => {
    async function open(): Promise<RedisClient> {
      const { client, end } = await connect(server);
      onTestFinished(end);
      return client;
    }

    test("the same holder sets many times, a newer one takes over, and the older one is refused", async () => {
      const client = await open();
      const key = randomUUID();
      await fencedSet(client, key, "a", { fence: 5n });
      await fencedSet(client, key, "b", { fence: 5n });
      await fencedSet(client, key, "c", { fence: 6n });
      await expect(fencedSet(client, key, "d", { fence: 5n })).rejects.toMatchObject({
        ...stale,
        key,
        fence: 5n,
        mark: 6n,
      });
      expect(await server.command("GET", key)).toBe("c");
      expect(await server.command("PTTL", key)).toBe(-1);
      expect(await server.command("GET", fenceMarkKey(key)!)).toBe("6");
    });

    test("the reply to another write is not believed", async () => {
      const client = await open();
      const keys = [randomUUID(), randomUUID(), randomUUID()];
      const set = () => keys.map((key) => fencedSet(client, key, "a", { fence: 5n }));
      await Promise.all(set());
      await server.command("SET", fenceMarkKey(keys[0]!)!, "6");
      // The server leaves this and the first write without a reply: that to the third is taken for that to the first.
      const words = ["CLIENT", "REPLY", "SKIP"];
      if ("call" in client) client.call(...(words as [string])).catch(() => {});
      else client.sendCommand(...([words] as never[])).catch(() => {});
      const outcomes = set().map((setting) => setting.then(() => "set").catch((error: unknown) => error));
      const told = await Promise.race([outcomes[0], sleep(5_000, "nothing")]);
      expect(told).toMatchObject({ code: "STORE_UNAVAILABLE" });
    });

    test("a script sees its own keys and arguments, and what it returns comes back", async () => {
      const client = await open();
      const keys = [randomUUID(), randomUUID()];
      const echo = fencedScript("return { #KEYS, KEYS[1], KEYS[2], #ARGV, ARGV[1], { false, 'deep' } }");
      expect(await echo.run(client, { fence: 5n }, { keys, args: ["x"] })).toEqual([
        2,
        ...keys,
        1,
        "x",
        [null, "deep"],
      ]);
      const nothing = fencedScript("local unused = 1 -- and no more");
      expect(await nothing.run(client, { fence: 5n }, { keys })).toBeNull();
      expect(await get.run(client, { fence: 5n }, { keys })).toBeNull();
    });

    test("a script that is stale is not run, and one that fails tells why", async () => {
      const client = await open();
      const [key] = [randomUUID()];
      const push = fencedScript("return redis.call('RPUSH', KEYS[1], ARGV[1])");
      expect(await push.run(client, { fence: 6n }, { keys: [key], args: ["a"] })).toBe(1);
      await expect(push.run(client, { fence: 5n }, { keys: [key], args: ["b"] })).rejects.toMatchObject(
        stale,
      );
      expect(await server.command("LLEN", key)).toBe(1);
      const wrong = fencedScript("return redis.call('INCR', KEYS[1])");
      await expect(wrong.run(client, { fence: 6n }, { keys: [key] })).rejects.toMatchObject({
        code: "STORE_FAILURE",
      });
      const returned = fencedScript("return redis.error_reply('MINE it is')");
      await expect(returned.run(client, { fence: 6n }, { keys: [key] })).rejects.toMatchObject({
        code: "STORE_FAILURE",
      });
    });

    test("a server that has forgotten its scripts is sent them again", async () => {
      const client = await open();
      const key = randomUUID();
      await fencedSet(client, key, "a", { fence: 5n });
      await server.command("SCRIPT", "FLUSH");
      await fencedSet(client, key, "b", { fence: 5n });
      expect(await server.command("GET", key)).toBe("b");
    });
  });

  async function open(): Promise<Redis> {
    const client = new Redis(server.port, "127.0.0.1");
    onTestFinished(() => client.disconnect());
    return client;
  }

  test("fences are compared to the last digit, up to the highest", async () => {
    const client = await open();
    const pairs = [
      [9n, 10n],
      [99n, 100n],
      [2n ** 53n, 2n ** 53n + 1n],
      [MAX_FENCE - 1n, MAX_FENCE],
    ] as const;
    for (const [older, newer] of pairs) {
      const key = randomUUID();
      await fencedSet(client, key, "old", { fence: older });
      await fencedSet(client, key, "new", { fence: newer });
      await expect(fencedSet(client, key, "old", { fence: older })).rejects.toMatchObject(stale);
      await fencedSet(client, key, "new", { fence: newer });
    }
  });

  test("values and marks live as long as they are told", async () => {
    const client = await open();
    const key = randomUUID();
    await fencedSet(client, key, "a", { fence: 5n }, { ttlMs: 60_000, keepMarkMs: 172_800_000 });
    const remaining = Number(await server.command("PTTL", key));
    expect(remaining).toBeGreaterThan(0);
    expect(remaining).toBeLessThanOrEqual(60_000);
    expect(Number(await server.command("PTTL", fenceMarkKey(key)!))).toBeGreaterThan(86_400_000);
    await server.command("DEL", key);
    await expect(fencedSet(client, key, "b", { fence: 4n })).rejects.toMatchObject(stale);
    await fencedSet(client, key, "b", { fence: 5n });
    expect(await server.command("PTTL", fenceMarkKey(key)!)).toBe(-1);
  });

  test("keys that share a resource keep a stale holder away from all of them", async () => {
    const client = await open();
    const resource = randomUUID();
    await fencedSet(client, `${resource}:a`, "new", { fence: 6n }, { resource });
    const refused = fencedSet(client, `${resource}:b`, "old", { fence: 5n }, { resource });
    await expect(refused).rejects.toMatchObject({ ...stale, key: resource });
  });

  test("a lease that is known to be lost is refused before anything is sent", async () => {
    const client = await open();
    const locks = createLocks();
    const lease = await locks.mutex("report").acquire();
    const key = randomUUID();
    await fencedSet(client, key, "a", lease);
    await lease.release();
    await expect(fencedSet(client, key, "b", lease)).rejects.toMatchObject({ code: "NOT_HELD" });
    expect(await server.command("GET", key)).toBe("a");
    await locks.close();
  });

  test("a mark that is no fence stops all writes, and says where it is", async () => {
    const client = await open();
    const key = randomUUID();
    await server.command("SET", fenceMarkKey(key)!, "yesterday");
    await expect(fencedSet(client, key, "a", { fence: 5n })).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining(fenceMarkKey(key)!),
    });
    expect(await server.command("GET", key)).toBeNull();
  });

  test("a server that cannot be reached is an outage", async () => {
    const client = new Redis(1, "127.0.0.1", { maxRetriesPerRequest: 0, retryStrategy: () => null });
    client.on("error", () => {});
    onTestFinished(() => client.disconnect());
    await expect(fencedSet(client, "a", "b", { fence: 5n })).rejects.toMatchObject({
      code: expect.stringMatching(/^STORE_/),
    });
  });

  test("what is wrong with a call is told before anything is sent", async () => {
    const client = await open();
    const invalid = { code: "INVALID_ARGUMENT" };
    const lease = { fence: 5n };
    await expect(fencedSet(client, "a", 5 as never, lease)).rejects.toMatchObject(invalid);
    await expect(fencedSet(client, "a", "b", lease, { ttlMs: 0 })).rejects.toMatchObject(invalid);
    await expect(fencedSet(client, "a", "b", lease, { keepMarkMs: 1_000 })).rejects.toMatchObject(invalid);
    await expect(fencedSet(client, "", "b", lease)).rejects.toMatchObject(invalid);
    await expect(get.run(client, lease, { keys: [] })).rejects.toMatchObject(invalid);
    await expect(get.run(client, lease, { keys: [5] as never })).rejects.toMatchObject(invalid);
    await expect(get.run({} as never, lease, { keys: ["a"] })).rejects.toMatchObject(invalid);
    expect(() => fencedScript("")).toThrow(expect.objectContaining(invalid));
  });

  test("a client with a prefix of its own is refused, because the mark would not know it", async () => {
    const client = new Redis(server.port, "127.0.0.1", { keyPrefix: "app:" });
    onTestFinished(() => client.disconnect());
    await expect(fencedSet(client, "a", "b", { fence: 5n })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("Write the prefix into the keys"),
    });
  });

  test("a script's own first line stays the first", async () => {
    const client = await open();
    const key = randomUUID();
    const set = fencedScript("#!lua flags=allow-stale\nreturn redis.call('SET', KEYS[1], 'a')");
    expect(await set.run(client, { fence: 5n }, { keys: [key] })).toBe("OK");
  });

  test("writers in any order agree with the model", async () => {
    const clients = await Promise.all([open(), open(), open()]);
    const append = fencedScript("return redis.call('RPUSH', KEYS[1], ARGV[1])");
    let turn = 0;
    await checkRegister({
      runs: 40,
      rollsBack: false,
      async write({ resource, fence, value }) {
        const client = clients[turn++ % clients.length]!;
        await append.run(client, { fence }, { keys: [resource], args: [`${fence} ${value}`] });
      },
      async written(resource) {
        const lines = (await server.command("LRANGE", resource, 0, -1)) as string[];
        return lines.map((line) => {
          const [fence = "", value = ""] = line.split(" ");
          return { fence: BigInt(fence), value };
        });
      },
    });
  });
});

describe.skipIf(!canRunRedis())("redis cluster: fenced writes", () => {
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 120_000);
  afterAll(() => cluster?.stop());

  test.each(Object.entries(clusterClients))("a mark is beside its key, through %s", async (_, connect) => {
    const { client, end } = await connect(cluster);
    onTestFinished(end);
    const id = randomUUID();
    // Slots of every master, with a hash tag and without, and a brace that opens none.
    const keys = [`${id}`, `a:{${id}}:b`, `${id}{`, `{a}${id}`, `{b}${id}`, `{c}${id}`, `${id}:1`, `${id}:2`];
    for (const key of keys) {
      await fencedSet(client, key, "new", { fence: 6n });
      await expect(fencedSet(client, key, "old", { fence: 5n })).rejects.toMatchObject(stale);
      expect(await get.run(client, { fence: 6n }, { keys: [key] })).toBe("new");
    }
    const several = fencedScript("return redis.call('MSET', KEYS[1], ARGV[1], KEYS[2], ARGV[2])");
    const both = { keys: [`{${id}}:a`, `{${id}}:b`], args: ["1", "2"], resource: `{${id}}` };
    expect(await several.run(client, { fence: 6n }, both)).toBe("OK");
    await expect(several.run(client, { fence: 5n }, both)).rejects.toMatchObject(stale);
    for (const key of [`${id}}`, `{}${id}`]) {
      await expect(fencedSet(client, key, "a", { fence: 5n })).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("hash tag"),
      });
    }
  });
});

test("redis: no two keys have one mark", () => {
  const keys = ["x", "{x}", "a{x}", "{x}a", "x{", "{x", "holdfast-fence:x", "x:holdfast-fence"];
  const marks = keys.map(fenceMarkKey);
  expect(new Set(marks).size).toBe(keys.length);
  expect(marks).not.toContain(undefined);
  expect(["x}", "{}x", "}{"].map(fenceMarkKey)).toEqual([undefined, undefined, undefined]);
});
