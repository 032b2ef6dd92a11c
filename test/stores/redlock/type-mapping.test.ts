/** Clients that hand out numbers as texts, and texts as buffers. */
import { createLocks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { redlockStore } from "holdfast/redlock";
import { Redis } from "ioredis";
import { Redis as Redis6 } from "ioredis6";
import { createClient, RESP_TYPES } from "redis";
import { createClient as createClient5 } from "redis5";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, until } from "../../engines/redis.ts";
import type { Connected } from "../../engines/redis-clients.ts";
import { type RedisGroup, startRedisServers } from "../../engines/redis-topologies.ts";

const host = "127.0.0.1";
const typeMapping = { [RESP_TYPES.NUMBER]: String, [RESP_TYPES.BLOB_STRING]: Buffer } as const;

const mappingClients: Readonly<Record<string, (port: number) => Promise<Connected>>> = {
  async "ioredis 5"(port) {
    const client = new Redis({ port, host, stringNumbers: true });
    return { client, end: () => client.disconnect() };
  },
  async "ioredis 6"(port) {
    const client = new Redis6({ port, host, stringNumbers: true });
    return { client, end: () => client.disconnect() };
  },
  async "node-redis 5"(port) {
    const client = createClient5({ socket: { port, host }, commandOptions: { typeMapping } });
    await client.connect();
    return { client, end: () => client.destroy() };
  },
  async "node-redis 6"(port) {
    const client = createClient({ socket: { port, host }, commandOptions: { typeMapping } });
    await client.connect();
    return { client, end: () => client.destroy() };
  },
};

describe.skipIf(!canRunRedis())("redlock: clients that map types", () => {
  let servers: RedisGroup;

  beforeAll(async () => {
    servers = await startRedisServers(3);
  }, 60_000);
  afterAll(() => servers?.stop());

  test.each(Object.entries(mappingClients))("%s is granted, waits and lists", async (name, connect) => {
    const connected = await Promise.all(servers.servers.map(({ port }) => connect(port)));
    onTestFinished(() => {
      for (const { end } of connected) end();
    });
    const clients = connected.map(({ client }) => client);
    for (const store of [redlockStore(clients), redisStore(clients[0]!, { keyPrefix: name })]) {
      const locks = createLocks(store);
      onTestFinished(() => locks.close());
      const lease = await locks.mutex("key").acquire({ waitMs: 5_000 });
      const next = locks.mutex("key").acquire({ waitMs: 10_000 });
      await until("somebody waits", async () => (await locks.inspect("key")).waitingCount === 1);
      expect(await lease.release()).toBe(true);
      const keys: string[] = [];
      for await (const { key } of locks.list({ prefix: "" })) keys.push(key);
      expect(keys).toEqual(["key"]);
      await (await next).release();
    }
  });
});
