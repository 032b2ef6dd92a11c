import { afterAll, beforeAll, describe } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";
import { testWrongClocks } from "../wrong-clocks.ts";

describe.skipIf(!canRunRedis())("redis: wrong clocks", { timeout: 60_000 }, () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  }, 120_000);
  afterAll(() => server?.stop());

  testWrongClocks({
    holder: { store: "redis", target: () => `${server.port}` },
    stampsFences: true,
  });
});
