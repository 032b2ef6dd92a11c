import type { LookPage } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { expect, onTestFinished, test } from "vitest";
import { canRunRedis, startRedis } from "../../engines/redis.ts";
import { claimRequest } from "../../record/claim-request.ts";

test.skipIf(!canRunRedis())(
  "redis: a listing misses no key while the server makes its table of locks smaller",
  { timeout: 60_000 },
  async () => {
    const server = await startRedis();
    const redis = new Redis(server.port, "127.0.0.1");
    const store = redisStore(redis);
    onTestFinished(async () => {
      await store.close();
      redis.disconnect();
      await server.stop();
    });
    const locks = "holdfast:{0}:locks";
    const keys = Array.from({ length: 400 }, (_, index) => `held-${index}`);
    await Promise.all(keys.map((key) => store.acquire(claimRequest("a", { key, ttlMs: 60_000 }))));
    for (let round = 0; round < 3; round++) {
      // So many others that the listed ones are spread over a large table, of which one page sees a part.
      await redis.eval("for i = 1, 4000 do redis.call('HSET', KEYS[1], 'other' .. i, '') end", 1, locks);
      const seen = new Set<string>();
      let cursor: string | undefined;
      let pages = 0;
      do {
        const query = { prefix: "held-", limit: 20, maxClaims: 0 };
        const page: LookPage = await store.look(cursor === undefined ? query : { ...query, cursor });
        for (const { key } of page.keys) seen.add(key);
        cursor = page.cursor;
        if (++pages === 1) {
          await redis.eval("for i = 1, 4000 do redis.call('HDEL', KEYS[1], 'other' .. i) end", 1, locks);
        }
      } while (cursor !== undefined);
      expect([...seen].sort()).toEqual([...keys].sort());
    }
  },
);

test.skipIf(!canRunRedis())("redis: a listing shows each key once, however small its pages", async () => {
  const server = await startRedis();
  const redis = new Redis(server.port, "127.0.0.1");
  const store = redisStore(redis);
  onTestFinished(async () => {
    await store.close();
    redis.disconnect();
    await server.stop();
  });
  // Most steps of the scan find none of those that are listed.
  const keys = Array.from({ length: 1_200 }, (_, index) => `${index % 3 === 0 ? "some" : "other"}-${index}`);
  await Promise.all(keys.map((key) => store.acquire(claimRequest("a", { key, ttlMs: 60_000 }))));
  // While the server makes its table of locks larger, a scan may come by a key twice. It does so with every look at the table, until it is done.
  const settle = "for _ = 1, 5000 do redis.call('HGET', KEYS[1], 'none') end";
  await redis.eval(settle, 1, "holdfast:{0}:locks");
  for (const limit of [1, 2]) {
    const shown: string[] = [];
    let cursor: string | undefined;
    do {
      const query = { prefix: "some-", limit, maxClaims: 0 };
      const page: LookPage = await store.look(cursor === undefined ? query : { ...query, cursor });
      shown.push(...page.keys.map(({ key }) => key));
      cursor = page.cursor;
    } while (cursor !== undefined);
    expect(shown.sort()).toEqual(keys.filter((key) => key.startsWith("some-")).sort());
  }
});
