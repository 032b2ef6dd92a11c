/** A key in Redis that is not what Holdfast wrote costs the one lock that it belongs to, and nobody else anything. */
import { type ClaimRequest, createLocks, type Store } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";

const locksKey = "holdfast:{0}:locks";

const kinds: readonly (readonly [string, (redis: Redis) => Promise<unknown>])[] = [
  ["a text in its place", (redis) => redis.hset(locksKey, "foreign", "not ours")],
  ["a long text in its place", (redis) => redis.hset(locksKey, "foreign", "not ours".repeat(10))],
  ["a list in the place of its claims", (redis) => redis.rpush("holdfast:{0}:claims:foreign", "not ours")],
  ["a text in the place of its queue", (redis) => redis.set("holdfast:{0}:queue:foreign", "not ours")],
  ["a text in the place of its limits", (redis) => redis.set("holdfast:{0}:limits:foreign", "not ours")],
];

describe.skipIf(!canRunRedis())("redis: a lock with", () => {
  let server: RedisServer;
  let client: Redis;
  let store: Store;
  let names = 0;

  beforeAll(async () => {
    server = await startRedis();
    client = new Redis(server.port, "127.0.0.1");
  }, 60_000);

  afterAll(async () => {
    client?.disconnect();
    await server?.stop();
  });

  beforeEach(async () => {
    await client.flushall();
    store = redisStore(client);
    onTestFinished(() => store.close());
  });

  function reader(key: string): ClaimRequest {
    const name = `${++names}`;
    const common = {
      weight: 1,
      limit: 100,
      priority: 0,
      ttlMs: 60_000,
      wait: true,
      info: "",
      application: "",
    };
    return { key, id: name, token: name, owner: name, ...common };
  }

  const told = expect.objectContaining({
    code: "STORE_FAILURE",
    key: "foreign",
    message: expect.stringMatching(
      /"holdfast:\{0\}:locks".*"holdfast:\{0\}:claims:foreign".*Delete the foreign data, or choose another keyPrefix/,
    ),
  });

  async function forget(key: string): Promise<void> {
    await client.hdel(locksKey, key);
    const keys = await client.keys(`*:${key}`);
    if (keys.length > 0) await client.del(...keys);
  }

  /** Asks for all of it in one batch. */
  async function ask(requests: readonly ClaimRequest[]) {
    const settled = await Promise.allSettled(requests.map((request) => store.acquire(request)));
    return settled.map((each) => (each.status === "fulfilled" ? each.value.state : each.reason));
  }

  test.each(kinds)("%s fails by itself, in the middle of a batch", async (_, put) => {
    await put(client);
    // Two claims to a key are spread over several keys in Redis, of which the last are written at the end of the batch.
    const batch = ["before", "before", "foreign", "foreign", "after", "after"].map(reader);
    const answers = await ask(batch);
    expect([answers[0], answers[1], answers[4], answers[5]]).toEqual(["held", "held", "held", "held"]);
    expect(answers[3]).toEqual(told);
    const { keys } = await store.look({ key: "before", maxClaims: 10 });
    expect(keys[0]).toMatchObject({ heldCount: 2, heldWeight: 2 });
    const others = batch.filter(({ key }) => key !== "foreign");
    expect(await store.release(others)).toEqual([true, true, true, true]);
    expect((await client.keys("*:before")).concat(await client.keys("*:after"))).toEqual([]);
    expect(await client.hkeys(locksKey)).not.toContain("before");
  });

  test.each(kinds)("%s works again when that has been deleted", async (_, put) => {
    await put(client);
    expect((await ask([reader("foreign"), reader("foreign")])).at(-1)).toEqual(told);
    await forget("foreign");
    expect(await ask([reader("foreign"), reader("foreign")])).toEqual(["held", "held"]);
  });

  test.each(kinds.slice(0, 2))("%s costs no other lease its heartbeat", async (_, put) => {
    const lost = reader("foreign");
    const kept = reader("kept");
    await ask([lost, kept]);
    await put(client);
    const [failed, held] = await store.renew([lost, kept]);
    expect(failed).toEqual({ state: "failed", error: told });
    expect(held).toMatchObject({ state: "held" });
    await expect(store.renew([lost])).rejects.toEqual(told);
    await expect(store.release([lost])).rejects.toEqual(told);
    await expect(store.look({ key: "foreign", maxClaims: 1 })).rejects.toEqual(told);
  });

  test("a text in the place of the mark is told, too", async () => {
    await client.hset(locksKey, "", "not ours");
    const locks = createLocks(store);
    await expect(locks.mutex("foreign").tryAcquire()).rejects.toEqual(told);
    await client.hdel(locksKey, "");
    expect(await locks.mutex("foreign").tryRun(() => 1)).toEqual({ ran: true, value: 1 });
    await locks.close();
  });
});
