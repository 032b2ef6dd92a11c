/**
 * The same work for Holdfast, for the libraries that people use today, and for the two commands that all of them are made of.
 * Each is loaded when it is made, so that a process has in it what it measures, and starts soon.
 */
import { randomUUID } from "node:crypto";
import type { Locks } from "holdfast";
import type { RedisClient } from "holdfast/redis";
import type { Redis } from "ioredis";

export const TTL_MS = 30_000;

export interface Contender {
  /** Waits for a key, however long that takes. Resolves to what gives it back. */
  acquire(key: string): Promise<() => Promise<unknown>>;
  close(): Promise<unknown>;
}

export interface ContenderOptions {
  readonly ttlMs?: number;
  /** How often redis-semaphore renews what it holds. Default: as often as it does by default. */
  readonly refreshMs?: number;
}

/** Makes a contender with a connection of its own. */
export type MakeContender = (port: number, options?: ContenderOptions) => Promise<Contender>;

const COMPARE_AND_DELETE =
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

async function holdfast(port: number, { ttlMs = TTL_MS }: ContenderOptions = {}): Promise<Contender> {
  const client = await connect(port);
  const locks = await locksOver(client);
  return {
    acquire: (key) => leaseOf(locks, key, ttlMs),
    async close() {
      await locks.close();
      client.disconnect();
    },
  };
}

async function holdfastOverNodeRedis(
  port: number,
  { ttlMs = TTL_MS }: ContenderOptions = {},
): Promise<Contender> {
  const client = await connectNodeRedis(port);
  const locks = await locksOver(client);
  return {
    acquire: (key) => leaseOf(locks, key, ttlMs),
    async close() {
      await locks.close();
      client.destroy();
    },
  };
}

async function locksOver(client: RedisClient): Promise<Locks> {
  const { createLocks } = await import("holdfast");
  const { redisStore } = await import("holdfast/redis");
  return createLocks(redisStore(client));
}

async function leaseOf(locks: Locks, key: string, ttlMs: number): Promise<() => Promise<unknown>> {
  const lease = await locks.mutex(key, { ttlMs }).acquire();
  return () => lease.release();
}

/** The least that a lock can be. It does not wait: a key that is taken is an error. */
async function raw(port: number, { ttlMs = TTL_MS }: ContenderOptions = {}): Promise<Contender> {
  const client = await connect(port);
  const sha = (await client.script("LOAD", COMPARE_AND_DELETE)) as string;
  return {
    async acquire(key) {
      const token = randomUUID();
      if ((await client.set(key, token, "PX", ttlMs, "NX")) !== "OK") throw new Error(`${key} is taken.`);
      return () => client.evalsha(sha, 1, key, token);
    },
    close: async () => client.disconnect(),
  };
}

async function rawNodeRedis(port: number, { ttlMs = TTL_MS }: ContenderOptions = {}): Promise<Contender> {
  const client = await connectNodeRedis(port);
  const sha = await client.scriptLoad(COMPARE_AND_DELETE);
  const expiration = { type: "PX", value: ttlMs } as const;
  return {
    async acquire(key) {
      const token = randomUUID();
      const set = await client.set(key, token, { expiration, condition: "NX" });
      if (set !== "OK") throw new Error(`${key} is taken.`);
      return () => client.evalSha(sha, { keys: [key], arguments: [token] });
    },
    close: async () => client.destroy(),
  };
}

async function nodeRedlock(port: number, { ttlMs = TTL_MS }: ContenderOptions = {}): Promise<Contender> {
  const { default: Redlock } = await import("redlock");
  const client = await connect(port);
  const redlock = new Redlock([client], { retryCount: -1 });
  // It reports every attempt on a key that is taken as an error.
  redlock.on("error", () => {});
  return {
    async acquire(key) {
      const lock = await redlock.acquire([key], ttlMs);
      return () => lock.release();
    },
    close: async () => client.disconnect(),
  };
}

async function redisSemaphore(port: number, options: ContenderOptions = {}): Promise<Contender> {
  const { ttlMs = TTL_MS, refreshMs: refreshInterval = ttlMs * 0.8 } = options;
  const { Mutex } = await import("redis-semaphore");
  const client = await connect(port);
  return {
    async acquire(key) {
      const mutex = new Mutex(client, key, {
        lockTimeout: ttlMs,
        refreshInterval,
        acquireTimeout: 3_600_000,
      });
      await mutex.acquire();
      return () => mutex.release();
    },
    close: async () => client.disconnect(),
  };
}

async function verrou(port: number, { ttlMs = TTL_MS }: ContenderOptions = {}): Promise<Contender> {
  const { Verrou } = await import("@verrou/core");
  const { redisStore } = await import("@verrou/core/drivers/redis");
  const client = await connect(port);
  const drivers = { redis: { driver: redisStore({ connection: client }) } };
  const locks = new Verrou({ default: "redis", stores: drivers });
  return {
    async acquire(key) {
      const lock = locks.createLock(key, ttlMs);
      await lock.acquire();
      return () => lock.release();
    },
    close: async () => client.disconnect(),
  };
}

async function connect(port: number): Promise<Redis> {
  const { Redis } = await import("ioredis");
  return new Redis({ port, host: "127.0.0.1" });
}

async function connectNodeRedis(port: number) {
  const { createClient } = await import("redis");
  return createClient({ socket: { port } }).connect();
}

export const contenders = {
  Holdfast: holdfast,
  "Holdfast over node-redis": holdfastOverNodeRedis,
  "raw ioredis": raw,
  "raw node-redis": rawNodeRedis,
  "node-redlock": nodeRedlock,
  "redis-semaphore": redisSemaphore,
  verrou,
} satisfies Readonly<Record<string, MakeContender>>;

export type ContenderName = keyof typeof contenders;
