/** The real clients fit without a cast. `tsc` checks this file; nothing in it has to run. */
import { type RedisClient, redisStore } from "holdfast/redis";
import type { Cluster, Redis } from "ioredis";
import type { Cluster as Cluster6, Redis as Redis6 } from "ioredis6";
import type { createClient, createCluster, createSentinel } from "redis";
import type {
  createClient as createClient5,
  createCluster as createCluster5,
  createSentinel as createSentinel5,
} from "redis5";
import { describe, expectTypeOf, test } from "vitest";

describe("redis: types", () => {
  test("ioredis 5 and 6 are clients", () => {
    expectTypeOf<Redis>().toExtend<RedisClient>();
    expectTypeOf<Cluster>().toExtend<RedisClient>();
    expectTypeOf<Redis6>().toExtend<RedisClient>();
    expectTypeOf<Cluster6>().toExtend<RedisClient>();
  });

  test("node-redis 5 and 6 are clients", () => {
    expectTypeOf<ReturnType<typeof createClient>>().toExtend<RedisClient>();
    expectTypeOf<ReturnType<typeof createCluster>>().toExtend<RedisClient>();
    expectTypeOf<ReturnType<typeof createSentinel>>().toExtend<RedisClient>();
    expectTypeOf<ReturnType<typeof createClient5>>().toExtend<RedisClient>();
    expectTypeOf<ReturnType<typeof createCluster5>>().toExtend<RedisClient>();
    expectTypeOf<ReturnType<typeof createSentinel5>>().toExtend<RedisClient>();
  });

  test("other things are not", () => {
    expectTypeOf<string>().not.toExtend<RedisClient>();
    expectTypeOf<Promise<Redis>>().not.toExtend<RedisClient>();
    // @ts-expect-error An address is not a client.
    expectTypeOf(redisStore).toBeCallableWith("redis://127.0.0.1");
  });
});
