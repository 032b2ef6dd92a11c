import { storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunRedis } from "../engines/redis.ts";
import { clusterClients } from "../engines/redis-clients.ts";
import { type RedisCluster, startRedisCluster } from "../engines/redis-topologies.ts";
import { redisHarness } from "./redis-harness.ts";

describe.skipIf(!canRunRedis())("redis: a cluster", () => {
  let servers: RedisCluster;

  beforeAll(async () => {
    servers = await startRedisCluster();
  }, 120_000);

  afterAll(() => servers?.stop());

  for (const [name, connect] of Object.entries(clusterClients)) {
    // Six servers share the machine with other tests: the shortest ttl must outlast what they may be kept waiting.
    const { harness, end } = redisHarness(`through ${name}`, () => connect(servers), 40);
    afterAll(end);
    storeContract(harness, { describe: describe.concurrent, it });
  }
});
