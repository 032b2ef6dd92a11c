/** What an application must not do on the client that it shares with the store, and what the store makes of it. */
import { createLocks, type Locks } from "holdfast";
import { type IoRedisClient, type NodeRedisClient, type RedisClient, redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";
import { standaloneClients } from "../../engines/redis-clients.ts";
import { createUser } from "./rights.ts";

function open(client: RedisClient): Locks {
  const locks = createLocks(redisStore(client), { requestTimeoutMs: 500, onWarning: () => {} });
  onTestFinished(() => locks.close());
  return locks;
}

/** As the application sends it. */
function send(client: RedisClient, ...words: [string, ...string[]]): Promise<unknown> {
  if ("call" in client) return (client as IoRedisClient).call(...words);
  return (client as NodeRedisClient).sendCommand(...([words] as never[]));
}

describe.skipIf(!canRunRedis())("redis: a shared client", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);
  beforeEach(() => server.command("FLUSHALL"));
  afterAll(() => server?.stop());

  describe.each(Object.keys(standaloneClients))("%s", (name) => {
    async function connect(credentials?: { username: string; password: string }): Promise<RedisClient> {
      const { client, end } = await standaloneClients[name]!(server, credentials);
      onTestFinished(end);
      return client;
    }

    test("that the application moves to another database leaves the locks where they are", async () => {
      const client = await connect();
      const [locks, others] = [open(client), open(await connect())];
      const lease = await locks.mutex("key").acquire();
      await send(client, "SELECT", "3");
      expect(await locks.mutex("key").tryAcquire()).toBe(null);
      const second = await locks.mutex("second").acquire();
      expect(await others.mutex("second").tryAcquire()).toBe(null);
      const keys: string[] = [];
      for await (const { key } of locks.list({ prefix: "" })) keys.push(key);
      expect(keys.sort()).toEqual(["key", "second"]);
      expect([await lease.release(), await second.release()]).toEqual([true, true]);
      // The application is where it wanted to be.
      expect(await send(client, "DBSIZE")).toBe(0);
    });

    test("in MULTI is an outage that names it, and serves again afterwards", async () => {
      const client = await connect();
      const locks = open(client);
      await locks.mutex("before").run(() => {});
      await send(client, "MULTI");
      await expect(locks.mutex("key").acquire()).rejects.toMatchObject({
        code: "STORE_UNAVAILABLE",
        message: expect.stringContaining("inside a MULTI"),
      });
      await send(client, "DISCARD");
      await locks.mutex("key").run((lease) => lease.assertHeld());
    });

    test("whose user may not select a database serves all the same", async () => {
      const user = await createUser([server], "unmoved", "-select");
      await open(await connect(user))
        .mutex("key")
        .run((lease) => lease.assertHeld());
    });
  });

  test("that was made for another database keeps locks there, whatever the application selects", async () => {
    const url = `redis://127.0.0.1:${server.port}/2`;
    const io = new Redis(url);
    const node = createClient({ url });
    await node.connect();
    onTestFinished(() => {
      io.disconnect();
      node.destroy();
    });
    for (const client of [io, node] as const) {
      const locks = open(client);
      const lease = await locks.mutex("key").acquire();
      await send(client, "SELECT", "5");
      expect(await locks.mutex("key").tryAcquire()).toBe(null);
      await lease.release();
    }
    const info = String(await server.command("INFO", "keyspace"));
    expect(info).toContain("db2:");
    expect(info).not.toMatch(/db[05]:/);
  });
});
