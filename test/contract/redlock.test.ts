import type { Store } from "holdfast";
import { redlockStore } from "holdfast/redlock";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { type RedisServer, startRedis } from "../engines/redis.ts";
import { type Connected, standaloneClients } from "../engines/redis-clients.ts";

let servers: RedisServer[] = [];

beforeAll(async () => {
  servers = await Promise.all(Array.from({ length: 5 }, () => startRedis()));
}, 120_000);

afterAll(() => Promise.all(servers.map((server) => server.stop())));

/** Which clients lead to the servers, one after the other: all of one kind, and of every kind. */
const majorities = [
  [3, ["ioredis 5"]],
  [5, Object.keys(standaloneClients)],
] as const;

for (const [count, kinds] of majorities) {
  const connect = ({ port }: RedisServer, node: number) =>
    standaloneClients[kinds[node % kinds.length] as string]!({ port });
  const harness: StoreHarness = {
    name: `redlock over ${count} servers, through ${kinds.join(", ")}`,
    tickMs: 50,
    counts: false,
    async open(options) {
      const opened: { store: Store; connected: Connected[] }[] = [];
      return {
        async store() {
          const connected = await Promise.all(servers.slice(0, count).map(connect));
          const clients = connected.map(({ client }) => client);
          const keyPrefix = `of-${count}`;
          const store = redlockStore(clients, { ...options, keyPrefix, nodeTimeoutMs: 2_000 });
          opened.push({ store, connected });
          // What is done at first use is done before a short ttl begins.
          await store.look({ key: "warm", maxClaims: 1 });
          return store;
        },
        async close() {
          for (const { store, connected } of opened) {
            await store.close();
            for (const { end } of connected) end();
          }
        },
      };
    },
  };
  storeContract(harness, { describe: describe.concurrent, it });
}
