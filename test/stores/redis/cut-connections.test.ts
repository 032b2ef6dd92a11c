/**
 * Connections that break in the middle of a call. ioredis and the sentinel of node-redis send by themselves what was not answered, other
 * clients of node-redis reject it and the client of Holdfast sends it again: either way the server may be asked twice for the same.
 */
import { createLocks, type Locks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Cluster } from "ioredis";
import { Cluster as Cluster6 } from "ioredis6";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { cutReplyTo, cutRequest, type NetworkProxy, type Rule, startProxy } from "../../engines/proxy.ts";
import { canRunRedis, type RedisServer, startRedis, startRedisServer } from "../../engines/redis.ts";
import { sentinelClients, standaloneClients } from "../../engines/redis-clients.ts";
import { startRedisCluster } from "../../engines/redis-topologies.ts";

describe.skipIf(!canRunRedis())("redis: a connection that is cut in the middle of a call", () => {
  let server: RedisServer;
  let proxy: NetworkProxy;
  let keys = 0;

  beforeAll(async () => {
    server = await startRedis();
    proxy = await startProxy(server.port);
  }, 60_000);

  afterEach(() => proxy.heal());
  afterAll(async () => {
    await proxy?.stop();
    await server?.stop();
  });

  async function open(client: string, port: number): Promise<Locks> {
    const connected = await standaloneClients[client]!({ port });
    const locks = createLocks(redisStore(connected.client), { onWarning: () => {} });
    onTestFinished(async () => {
      proxy.heal();
      await locks.close();
      connected.end();
    });
    // The first use, and with it the script, is over.
    await locks.mutex("warm").run(() => {});
    return locks;
  }

  /** Applies a rule, and counts how often it did anything. */
  function decide(rule: Rule): { readonly cuts: number } {
    const counted = { cuts: 0 };
    proxy.decide((piece) => {
      const fate = rule(piece);
      if (fate !== "pass") counted.cuts++;
      return fate;
    });
    return counted;
  }

  const fates = [
    ["after the server has done it", (key: string) => cutReplyTo(key)],
    ["before all of it has arrived", (key: string) => cutRequest(key, 100)],
  ] as const;
  const cases = Object.keys(standaloneClients).flatMap((client) =>
    fates.map(([when, ruleFor]) => [client, when, ruleFor] as const),
  );

  test.each(cases)("%s, %s: an acquire makes one claim, and no second", async (client, _, ruleFor) => {
    const [far, near] = [await open(client, proxy.port), await open("ioredis 5", server.port)];
    const key = `acquired-${++keys}`;
    const counted = decide(ruleFor(key));
    const lease = await far.mutex(key, { ttlMs: 20_000 }).acquire();
    proxy.heal();
    expect(counted.cuts).toBeGreaterThan(0);
    const { held, waitingCount } = await near.inspect(key);
    expect(held.map(({ id, fence }) => [id, fence])).toEqual([[lease.id, lease.fence]]);
    expect(waitingCount).toBe(0);
    expect(await near.mutex(key).tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    expect((await near.mutex(key).acquire()).fence).toBeGreaterThan(lease.fence);
  });

  test.each(cases)("%s, %s: whoever waits has one place in the queue", async (client, _, ruleFor) => {
    const [far, near] = [await open(client, proxy.port), await open("ioredis 5", server.port)];
    const key = `awaited-${++keys}`;
    const holder = await near.mutex(key).acquire();
    const counted = decide(ruleFor(key));
    const waiting = far.mutex(key, { ttlMs: 20_000 }).acquire();
    await expect.poll(async () => (await near.inspect(key)).waitingCount, { timeout: 10_000 }).toBe(1);
    proxy.heal();
    await holder.release();
    const lease = await waiting;
    expect(counted.cuts).toBeGreaterThan(0);
    expect(await near.inspect(key)).toMatchObject({ heldCount: 1, waitingCount: 0, fence: lease.fence });
  });

  test.each(cases)(
    "%s, %s: a release frees the lock, and says that it was held",
    async (client, _, ruleFor) => {
      const [far, near] = [await open(client, proxy.port), await open("ioredis 5", server.port)];
      const key = `released-${++keys}`;
      const lease = await far.mutex(key, { ttlMs: 20_000 }).acquire();
      const counted = decide(ruleFor(key));
      expect(await lease.release()).toBe(true);
      expect(counted.cuts).toBeGreaterThan(0);
      expect((await near.inspect(key)).heldCount).toBe(0);
    },
  );
});

describe.skipIf(!canRunRedis())("redis: a connection to one server of a cluster that is cut", () => {
  test.each([
    ["ioredis 5", Cluster],
    ["ioredis 6", Cluster6],
  ])("%s: a release frees the lock, and says that it was held", { timeout: 60_000 }, async (_, Client) => {
    const cluster = await startRedisCluster();
    onTestFinished(() => cluster.stop());
    const proxies = new Map<number, NetworkProxy>();
    for (const { port } of cluster.servers) proxies.set(port, await startProxy(port));
    onTestFinished(async () => void (await Promise.all([...proxies.values()].map((proxy) => proxy.stop()))));
    const host = "127.0.0.1";
    const natMap = Object.fromEntries(
      [...proxies].map(([port, proxy]) => [`${host}:${port}`, { host, port: proxy.port }]),
    );
    const client = new Client([{ host, port: cluster.masters[0]!.port }], { natMap });
    client.on("error", () => {});
    const locks = createLocks(redisStore(client), { onWarning: () => {}, requestTimeoutMs: 20_000 });
    onTestFinished(async () => {
      await locks.close();
      client.disconnect();
    });

    const lease = await locks.mutex("in-a-cluster", { ttlMs: 40_000 }).acquire();
    // One rule for all of them: only the first copy of the call loses its reply, whichever server gets the second.
    const rule = cutReplyTo("in-a-cluster");
    let cuts = 0;
    for (const proxy of proxies.values()) {
      proxy.decide((piece) => {
        const fate = rule(piece);
        if (fate !== "pass") cuts++;
        return fate;
      });
    }
    expect(await lease.release()).toBe(true);
    expect(cuts).toBe(1);
    expect((await locks.inspect("in-a-cluster")).heldCount).toBe(0);
  });
});

describe.skipIf(!canRunRedis())("redis: a connection to a master with a sentinel that is cut", () => {
  test.each(Object.entries(sentinelClients))(
    "%s: a release frees the lock, and says that it was held",
    { timeout: 60_000 },
    async (_, connect) => {
      const { proxy, name, sentinels } = await startMasterBehindProxy();
      const { client, end } = await connect({ name, sentinels });
      const locks = createLocks(redisStore(client), { onWarning: () => {}, requestTimeoutMs: 20_000 });
      onTestFinished(async () => {
        await locks.close();
        end();
      });
      const lease = await locks.mutex("watched-over", { ttlMs: 40_000 }).acquire();
      const rule = cutReplyTo("watched-over");
      let cuts = 0;
      proxy.decide((piece) => {
        const fate = rule(piece);
        if (fate !== "pass") cuts++;
        return fate;
      });
      expect(await lease.release()).toBe(true);
      expect(cuts).toBe(1);
      expect((await locks.inspect("watched-over")).heldCount).toBe(0);
    },
  );
});

/** A master that its sentinel knows by the address of a proxy. */
async function startMasterBehindProxy() {
  const name = "behind-a-proxy";
  const master = await startRedis();
  onTestFinished(() => master.stop());
  const proxy = await startProxy(master.port);
  onTestFinished(() => proxy.stop());
  const configuration = `sentinel monitor ${name} 127.0.0.1 ${proxy.port} 1\n`;
  const sentinel = await startRedisServer({ configuration, settings: ["--sentinel"] });
  onTestFinished(() => sentinel.stop());
  return { proxy, name, sentinels: [sentinel] };
}
