import type { Store } from "holdfast";
import { type RedisClient, redisStore } from "holdfast/redis";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, describe, it } from "vitest";
import { type RedisServer, startRedis } from "../engines/redis.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, 120_000);

afterAll(() => server.stop());

interface Connected {
  readonly client: RedisClient;
  end(): void;
}

const clients: Record<string, () => Promise<Connected>> = {
  async ioredis() {
    const client = new Redis(server.port, "127.0.0.1");
    return { client, end: () => client.disconnect() };
  },
  async "node-redis"() {
    const client = createClient({ url: `redis://127.0.0.1:${server.port}` });
    client.on("error", () => {});
    await client.connect();
    return { client, end: () => client.destroy() };
  },
};

for (const [name, connect] of Object.entries(clients)) {
  const harness: StoreHarness = {
    name: `redis through ${name}`,
    tickMs: 20,
    async open(options) {
      const opened: { store: Store; end(): void }[] = [];
      return {
        async store() {
          const { client, end } = await connect();
          const store = redisStore(client, options);
          opened.push({ store, end });
          return store;
        },
        async close() {
          for (const { store, end } of opened) {
            await store.close();
            end();
          }
        },
      };
    },
  };
  storeContract(harness, { describe: describe.concurrent, it });
}
