import type { Store } from "holdfast";
import { redlockStore } from "holdfast/redlock";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, it } from "vitest";
import { type RedisServer, startRedis } from "../engines/redis.ts";

let servers: RedisServer[] = [];

beforeAll(async () => {
  servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
}, 120_000);

afterAll(() => Promise.all(servers.map((server) => server.stop())));

for (const count of [3, 5]) {
  const harness: StoreHarness = {
    name: `redlock over ${count} servers`,
    tickMs: 40,
    counts: false,
    async open(options) {
      const opened: { store: Store; clients: Redis[] }[] = [];
      return {
        async store() {
          const clients = servers.slice(0, count).map(({ port }) => new Redis(port, "127.0.0.1"));
          const keyPrefix = `of-${count}`;
          const store = redlockStore(clients, { ...options, keyPrefix, nodeTimeoutMs: 2_000 });
          opened.push({ store, clients });
          return store;
        },
        async close() {
          for (const { store, clients } of opened) {
            await store.close();
            for (const client of clients) client.disconnect();
          }
        },
      };
    },
  };
  storeContract(harness, { describe: describe.concurrent, it });
}
