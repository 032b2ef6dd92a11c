import { afterAll, beforeAll, describe } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";
import { testWrongClocks } from "../wrong-clocks.ts";

describe.skipIf(!canRunRedis())("redlock: wrong clocks", { timeout: 60_000 }, () => {
  let servers: readonly RedisServer[] = [];
  beforeAll(async () => {
    servers = await Promise.all([startRedis(), startRedis(), startRedis()]);
  }, 120_000);
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  testWrongClocks({
    holder: {
      store: "redlock",
      target: () => servers.map(({ port }) => port).join(","),
    },
    stampsFences: true,
  });
});
