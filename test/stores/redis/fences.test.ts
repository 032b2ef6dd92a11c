/** Fences after a server has lost what it gave out and its clock is behind: what its clients remember is enough. */
import { createLocks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";

describe.skipIf(!canRunRedis())("redis: fences", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);

  afterAll(() => server?.stop());

  function open() {
    const client = new Redis(server.port, "127.0.0.1");
    const locks = createLocks(redisStore(client));
    onTestFinished(async () => {
      await locks.close();
      client.disconnect();
    });
    return locks;
  }

  /** As a master whose clock is a minute ahead would leave it. */
  async function beAhead(): Promise<bigint> {
    const ahead = BigInt(Date.now() + 60_000) * 1_000n;
    await server.command("HSET", "holdfast:{0}:locks", "", String(ahead));
    return ahead;
  }

  test("a client is given none below those that it has seen, by whichever server", async () => {
    const locks = open();
    const ahead = await beAhead();
    const former = await locks.mutex("key").run((lease) => lease.fence);
    expect(former).toBeGreaterThan(ahead);
    await server.command("FLUSHALL");
    expect(await locks.mutex("key").run((lease) => lease.fence)).toBeGreaterThan(former);
    expect(await locks.mutex("other").run((lease) => lease.fence)).toBeGreaterThan(former);
  });

  test("one client that has seen the highest is enough for all", async () => {
    const [locks, others] = [open(), open()];
    await beAhead();
    const former = await locks.mutex("key").run((lease) => lease.fence);
    await server.command("FLUSHALL");
    await locks.mutex("other").run(() => {});
    expect(await others.mutex("key").run((lease) => lease.fence)).toBeGreaterThan(former);
  });

  test("a client that waited has seen its own, too", async () => {
    const locks = open();
    await beAhead();
    const lease = await open().mutex("key", { ttlMs: 5_000 }).acquire();
    const waiting = locks.mutex("key", { ttlMs: 5_000 }).acquire();
    await lease.release();
    const next = await waiting;
    await server.command("FLUSHALL");
    expect(await locks.mutex("other").run((other) => other.fence)).toBeGreaterThan(next.fence);
  });
});
