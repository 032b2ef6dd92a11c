/** Every client that the Redis store takes, connected to every shape of Redis. */
import type { RedisClient } from "holdfast/redis";
import { Cluster, Redis } from "ioredis";
import { Cluster as Cluster6, Redis as Redis6 } from "ioredis6";
import { createClient, createCluster, createSentinel } from "redis";
import {
  createClient as createClient5,
  createCluster as createCluster5,
  createSentinel as createSentinel5,
} from "redis5";
import type { RedisServer } from "./redis.ts";
import type { RedisCluster, RedisSentinels } from "./redis-topologies.ts";

export interface Connected {
  readonly client: RedisClient;
  end(): void;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

const host = "127.0.0.1";
const ignore = () => {};

/**
 * node-redis 5 tells a server what it is at the beginning of each connection. When the one before was lost while a command
 * was being sent, that command gets the reply, and the client waits for it for ever: docs/stores/redis.md.
 */
const quiet5 = { disableClientInfo: true };

type Connect<T> = (to: T, credentials?: Credentials) => Promise<Connected>;

export const standaloneClients: Readonly<Record<string, Connect<Pick<RedisServer, "port">>>> = {
  async "ioredis 5"({ port }, credentials) {
    const client = new Redis({ port, host, ...credentials }).on("error", ignore);
    return { client, end: () => client.disconnect() };
  },
  async "ioredis 6"({ port }, credentials) {
    const client = new Redis6({ port, host, ...credentials }).on("error", ignore);
    return { client, end: () => client.disconnect() };
  },
  async "node-redis 5"({ port }, credentials) {
    const client = createClient5({ socket: { port, host }, ...quiet5, ...credentials });
    await client.on("error", ignore).connect();
    return { client, end: () => client.destroy() };
  },
  async "node-redis 6"({ port }, credentials) {
    const client = createClient({ socket: { port, host }, ...credentials });
    await client.on("error", ignore).connect();
    return { client, end: () => client.destroy() };
  },
};

export const clusterClients: Readonly<Record<string, Connect<RedisCluster>>> = {
  async "ioredis 5"({ servers }, credentials) {
    const client = new Cluster(addresses(servers), { redisOptions: { ...credentials } }).on("error", ignore);
    return { client, end: () => client.disconnect() };
  },
  async "ioredis 6"({ servers }, credentials) {
    const client = new Cluster6(addresses(servers), { redisOptions: { ...credentials } }).on("error", ignore);
    return { client, end: () => client.disconnect() };
  },
  async "node-redis 5"({ servers }, credentials) {
    const client = createCluster5({
      rootNodes: addresses(servers).map((socket) => ({ socket })),
      defaults: { ...quiet5, ...credentials },
    });
    await client.on("error", ignore).connect();
    return { client, end: () => client.destroy() };
  },
  async "node-redis 6"({ servers }, credentials) {
    const client = createCluster({
      rootNodes: addresses(servers).map((socket) => ({ socket })),
      defaults: { ...credentials },
    });
    await client.on("error", ignore).connect();
    return { client, end: () => client.destroy() };
  },
};

export const sentinelClients: Readonly<Record<string, Connect<Pick<RedisSentinels, "name" | "sentinels">>>> =
  {
    async "ioredis 5"({ name, sentinels }, credentials) {
      const client = new Redis({ name, sentinels: addresses(sentinels), ...credentials }).on("error", ignore);
      return { client, end: () => client.disconnect() };
    },
    async "ioredis 6"({ name, sentinels }, credentials) {
      const client = new Redis6({ name, sentinels: addresses(sentinels), ...credentials }).on(
        "error",
        ignore,
      );
      return { client, end: () => client.disconnect() };
    },
    async "node-redis 5"({ name, sentinels }, credentials) {
      const client = createSentinel5({
        name,
        sentinelRootNodes: addresses(sentinels),
        nodeClientOptions: { ...quiet5, ...credentials },
      });
      await client.on("error", ignore).connect();
      return { client, end: () => client.destroy() };
    },
    async "node-redis 6"({ name, sentinels }, credentials) {
      const client = createSentinel({
        name,
        sentinelRootNodes: addresses(sentinels),
        nodeClientOptions: { ...credentials },
      });
      await client.on("error", ignore).connect();
      return { client, end: () => client.destroy() };
    },
  };

function addresses(servers: readonly RedisServer[]): { host: string; port: number }[] {
  return servers.map(({ port }) => ({ host, port }));
}
