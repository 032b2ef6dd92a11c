import { storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../engines/redis.ts";
import { standaloneClients } from "../engines/redis-clients.ts";
import { redisHarness } from "./redis-harness.ts";

describe.skipIf(!canRunRedis())("redis: one server", () => {
  let servers: RedisServer;

  beforeAll(async () => {
    servers = await startRedis();
  }, 120_000);

  afterAll(() => servers?.stop());

  for (const [name, connect] of Object.entries(standaloneClients)) {
    const { harness, end } = redisHarness(`through ${name}`, () => connect(servers));
    afterAll(end);
    storeContract(harness, { describe: describe.concurrent, it });
  }
});
