import type { Store } from "holdfast";
import { redlockStore } from "holdfast/redlock";
import { type StoreHarness, storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { type RedisServer, startRedis } from "../engines/redis.ts";
import { type Connected, standaloneClients } from "../engines/redis-clients.ts";

let servers: RedisServer[] = [];

beforeAll(async () => {
  servers = await Promise.all(Array.from({ length: 3 }, () => startRedis()));
}, 120_000);

afterAll(() => Promise.all(servers.map((server) => server.stop())));

const kinds = Object.keys(standaloneClients);
const connect = ({ port }: RedisServer, node: number) => standaloneClients[kinds[node] as string]!({ port });
const harness: StoreHarness = {
  name: "redlock over three servers, through three kinds of clients",
  tickMs: 50,
  counts: false,
  async open(options) {
    const opened: { store: Store; connected: Connected[] }[] = [];
    return {
      async store() {
        const connected = await Promise.all(servers.map(connect));
        const clients = connected.map(({ client }) => client);
        const store = redlockStore(clients, { ...options, nodeTimeoutMs: 2_000 });
        opened.push({ store, connected });
        // The first use takes longer, so it comes before a test with a short ttl.
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
