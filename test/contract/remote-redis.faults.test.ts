/** The suite through lock servers, over Redis: each instance has a server of its own, as behind a load balancer. */
import type { Store } from "holdfast";
import { redisStore } from "holdfast/redis";
import { remoteStore } from "holdfast/remote";
import type { LockServer } from "holdfast/server";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../engines/redis.ts";
import { startLockServer } from "../server/lock-server.ts";

describe.skipIf(!canRunRedis())("remote", () => {
  let redis: RedisServer;

  beforeAll(async () => {
    redis = await startRedis();
  }, 120_000);

  afterAll(() => redis?.stop());

  const harness: StoreHarness = {
    name: "over Redis",
    tickMs: 50,
    async open(options) {
      const clients: Redis[] = [];
      const stores: Store[] = [];
      const servers: LockServer[] = [];
      return {
        async store() {
          const client = new Redis(redis.port, "127.0.0.1");
          clients.push(client);
          const server = await startLockServer({ store: redisStore(client, options), closeStore: true });
          servers.push(server);
          const store = remoteStore(server.url);
          stores.push(store);
          return store;
        },
        async close() {
          await Promise.all(stores.map((store) => store.close()));
          await Promise.all(servers.map((server) => server.stop({ graceMs: 0 })));
          for (const client of clients) client.disconnect();
        },
      };
    },
  };

  storeContract(harness, { describe: describe.concurrent, it });
});
