import { storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunRedis } from "../engines/redis.ts";
import { sentinelClients } from "../engines/redis-clients.ts";
import { type RedisSentinels, startRedisSentinels } from "../engines/redis-topologies.ts";
import { redisHarness } from "./redis-harness.ts";

describe.skipIf(!canRunRedis())("redis: a master with sentinels", () => {
  let servers: RedisSentinels;

  beforeAll(async () => {
    servers = await startRedisSentinels();
  }, 120_000);

  afterAll(() => servers?.stop());

  for (const [name, connect] of Object.entries(sentinelClients)) {
    const { harness, end } = redisHarness(`through ${name}`, () => connect(servers));
    afterAll(end);
    storeContract(harness, { describe: describe.concurrent, it });
  }
});
