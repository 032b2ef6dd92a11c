/** A client library that mixes up the replies on a connection must not make anybody a holder. */
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import type { IoRedisClient } from "../../../src/stores/redis/connection.ts";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";
import { claimRequest } from "../../record/claim-request.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, 120_000);

afterAll(() => server?.stop());

/** Hands out the reply to the call before, once it is told to. */
function mixedUp(redis: Redis): { client: IoRedisClient; mixUp(reply: (before: unknown) => unknown): void } {
  let alter: ((before: unknown) => unknown) | undefined;
  let before: unknown;
  const client = new Proxy(redis as unknown as IoRedisClient, {
    get(target, name) {
      if (name !== "call") {
        const value = Reflect.get(target, name) as unknown;
        return typeof value === "function" ? value.bind(target) : value;
      }
      return async (command: string, ...args: string[]) => {
        const reply = await target.call(command, ...args);
        const altered = alter === undefined ? reply : alter(before);
        before = reply;
        return altered;
      };
    },
  });
  return {
    client,
    mixUp(reply) {
      alter = reply;
    },
  };
}

test.skipIf(!canRunRedis()).each([
  ["the reply to the call before", (before: unknown) => before],
  ["the reply to another command", () => "OK"],
  ["nothing", () => null],
])("redis: %s is taken for no answer", async (_, reply) => {
  const redis = new Redis(server.port, "127.0.0.1");
  onTestFinished(() => redis.disconnect());
  const { client, mixUp } = mixedUp(redis);
  const store = redisStore(client);
  expect(await store.acquire(claimRequest("a", { key: "one", ttlMs: 60_000 }))).toMatchObject({
    state: "held",
  });
  expect(await store.acquire(claimRequest("b", { key: "two", ttlMs: 60_000 }))).toMatchObject({
    state: "held",
  });
  mixUp(reply);
  await expect(store.acquire(claimRequest("c", { key: "one", wait: false }))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
  });
  await store.close();
});
