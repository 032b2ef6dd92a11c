import { storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../engines/redis.ts";
import { type Credentials, standaloneClients } from "../engines/redis-clients.ts";
import { createUser } from "../stores/redis/rights.ts";
import { redisHarness } from "./redis-harness.ts";

describe.skipIf(!canRunRedis())("redis: one server, as a user with the documented rights", () => {
  let server: RedisServer;
  let user: Credentials;

  beforeAll(async () => {
    server = await startRedis();
    user = await createUser([server], "holdfast");
  }, 120_000);

  afterAll(() => server?.stop());

  for (const [name, connect] of Object.entries(standaloneClients)) {
    const { harness, end } = redisHarness(`through ${name}`, () => connect(server, user));
    afterAll(end);
    storeContract(harness, { describe: describe.concurrent, it });
  }
});
