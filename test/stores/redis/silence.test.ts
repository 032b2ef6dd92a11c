/** Connections that a network has forgotten: nothing comes back over them, and no end is told. */
import { createLocks, type Locks } from "holdfast";
import { type IoRedisClient, type NodeRedisClient, type RedisClient, redisStore } from "holdfast/redis";
import { redlockStore } from "holdfast/redlock";
import { Cluster } from "ioredis";
import { Cluster as Cluster6 } from "ioredis6";
import { createCluster } from "redis";
import { createClient as createClient5, createCluster as createCluster5 } from "redis5";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunRedis, type RedisServer, startRedis, startRedisServer } from "../../engines/redis.ts";
import { sentinelClients, standaloneClients } from "../../engines/redis-clients.ts";
import { startRedisCluster, startRedisServers } from "../../engines/redis-topologies.ts";
import { type ForgetfulNetwork, forgetful } from "../forgetful-network.ts";

const requestTimeoutMs = 2_500;
const host = "127.0.0.1";
const ignore = () => {};
const clients = Object.keys(standaloneClients);

function open(client: RedisClient, timeoutMs = requestTimeoutMs): Locks {
  const locks = createLocks(redisStore(client), { requestTimeoutMs: timeoutMs, onWarning: ignore });
  onTestFinished(() => locks.close());
  return locks;
}

async function connect(name: string, port: number): Promise<RedisClient> {
  const { client, end } = await standaloneClients[name]!({ port });
  onTestFinished(end);
  return client;
}

/** As the application sends it. */
function send(client: RedisClient, ...words: [string, ...string[]]): Promise<unknown> {
  if ("call" in client) return (client as IoRedisClient).call(...words);
  return (client as NodeRedisClient).sendCommand(...([words] as never[]));
}

/** Counts what is sent, by the store or by anybody else. */
function countCalls(client: RedisClient): { calls: number } {
  const counted = { calls: 0 };
  const method = "call" in client ? "call" : "sendCommand";
  const methods = client as unknown as Record<string, (...args: unknown[]) => unknown>;
  const original = methods[method]!.bind(client);
  methods[method] = (...args) => {
    counted.calls++;
    return original(...args);
  };
  return counted;
}

async function expectOutage(locks: Locks, key: string): Promise<void> {
  await expect(locks.mutex(key).tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
}

/** The connections that only listen. */
async function listenersOf(servers: readonly RedisServer[]): Promise<string[]> {
  const lists = servers.map(async (server) => {
    const list = String(await server.command("CLIENT", "LIST", "TYPE", "pubsub"));
    return [...list.matchAll(/^id=\d+/gm)].map(([id]) => `${server.port} ${id}`);
  });
  return (await Promise.all(lists)).flat();
}

async function untilOthersListen(servers: readonly RedisServer[], before: string[], count: number) {
  const others = async () => (await listenersOf(servers)).filter((each) => !before.includes(each));
  await until("others listen", async () => (await others()).length >= count, 10_000);
}

/** That a lock is had again, within the time of two requests. */
async function expectRecovery(locks: Locks, key: string): Promise<void> {
  const sinceMs = performance.now();
  await until(`"${key}" is had`, () => locks.mutex(key).run(() => Promise.resolve(true)));
  expect(performance.now() - sinceMs).toBeLessThan(2 * requestTimeoutMs);
}

describe.skipIf(!canRunRedis())("redis: silent connections", { timeout: 60_000 }, () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);

  afterAll(() => server?.stop());

  test("are replaced with every client, and few requests wait meanwhile", async () => {
    await Promise.all(
      clients.map(async (name) => {
        const network = await forgetful(server.port);
        const client = await connect(name, network.port);
        const locks = open(client);
        const lease = await locks.mutex(`${name} kept`, { ttlMs: 30_000 }).acquire();
        network.fallSilent();
        const asked = Array.from({ length: 30 }, (_, nth) => expectOutage(locks, `${name} first ${nth}`));
        await Promise.all(asked);
        const counted = countCalls(client);
        for (let nth = 0; nth < 100; nth++) {
          const late = locks.mutex(`${name} late ${nth}`).tryAcquire();
          late.catch(ignore);
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        // And some probes.
        expect(counted.calls).toBeLessThan(20);
        network.comeBack();
        await expectRecovery(locks, `${name} key`);
        expect(await lease.release()).toBe(true);
      }),
    );
  });

  test("that were made in the silence are replaced as well", async () => {
    const opened = await Promise.all(
      [...clients, "node-redis 5 with a greeting"].map(async (name) => {
        const network = await forgetful(server.port);
        const client = clients.includes(name)
          ? await connect(name, network.port)
          : await connectGreeting(network.port);
        const locks = open(client);
        await locks.mutex(`${name} warm`).run(() => {});
        network.fallSilent();
        network.reset();
        return { name, network, locks };
      }),
    );
    await Promise.all(opened.map(({ name, locks }) => expectOutage(locks, `${name} reset`)));
    for (const { network } of opened) network.comeBack();
    await Promise.all(opened.map(({ name, locks }) => expectRecovery(locks, `${name} reset`)));
  });

  /** As it comes, it tells the server what it is. */
  async function connectGreeting(port: number): Promise<RedisClient> {
    const client = createClient5({ socket: { port, host } }).on("error", ignore);
    onTestFinished(() => client.destroy());
    return client.connect();
  }

  test("that only listen are replaced, and whoever waits is told of a grant", async () => {
    const near = open(await connect("ioredis 5", server.port));
    const listening: Awaited<ReturnType<typeof wait>>[] = [];
    async function wait(name: string) {
      const network = await forgetful(server.port);
      const locks = open(await connect(name, network.port), 10_000);
      const lease = await near.mutex(`${name} heard`, { ttlMs: 60_000 }).acquire();
      const waiting = locks.mutex(`${name} heard`, { ttlMs: 60_000 }).acquire();
      await until("it waits", async () => (await near.inspect(`${name} heard`)).waitingCount === 1);
      return { network, lease, waiting };
    }
    for (const name of clients) listening.push(await wait(name));
    const before = await listenersOf([server]);
    for (const { network } of listening) {
      network.fallSilent();
      network.comeBack();
    }
    await untilOthersListen([server], before, clients.length);
    await Promise.all(
      listening.map(async ({ lease, waiting }) => {
        await lease.release();
        const sinceMs = performance.now();
        await (await waiting).release();
        // A heartbeat would come after twenty seconds. The other connection of the client has to be replaced as well.
        expect(performance.now() - sinceMs).toBeLessThan(2 * requestTimeoutMs);
      }),
    );
  });

  test("are told from a server that is slow", async () => {
    const slow = await startRedis();
    onTestFinished(() => slow.stop());
    const connected = await Promise.all(clients.map((name) => connect(name, slow.port)));
    const ids = await Promise.all(connected.map((client) => send(client, "CLIENT", "ID")));
    const opened = connected.map((client) => open(client));
    await Promise.all(opened.map((locks, nth) => locks.mutex(`warm ${nth}`).run(() => {})));
    slow.pause();
    await Promise.all(opened.map((locks, nth) => expectOutage(locks, `slow ${nth}`)));
    await Promise.all(opened.map((locks, nth) => expectOutage(locks, `slow ${nth}`)));
    slow.resume();
    await Promise.all(opened.map((locks, nth) => expectRecovery(locks, `slow ${nth}`)));
    expect(await Promise.all(connected.map((client) => send(client, "CLIENT", "ID")))).toEqual(ids);
  });

  test("are told from one on which the application waits, where the client shows that", async () => {
    await Promise.all(
      ["ioredis 5", "ioredis 6"].map(async (name) => {
        const client = await connect(name, server.port);
        const locks = open(client);
        await locks.mutex(`${name} warm`).run(() => {});
        const id = await send(client, "CLIENT", "ID");
        const popped = send(client, "BLPOP", `${name} nothing`, "6");
        popped.catch(ignore);
        await expect(locks.mutex(`${name} blocked`).tryAcquire()).rejects.toThrow("waits for a BLPOP");
        expect(await popped).toBe(null);
        expect(await send(client, "CLIENT", "ID")).toBe(id);
        await locks.mutex(`${name} blocked`).run(() => {});
      }),
    );
  });

  test("to a master that sentinels choose are replaced", async () => {
    const name = "forgotten";
    const master = await startRedis();
    onTestFinished(() => master.stop());
    const network = await forgetful(master.port);
    const configuration = `sentinel monitor ${name} ${host} ${network.port} 1\n`;
    const sentinel = await startRedisServer({ configuration, settings: ["--sentinel"] });
    onTestFinished(() => sentinel.stop());
    const opened = await Promise.all(
      Object.entries(sentinelClients).map(async ([client, connectTo]) => {
        const connected = await connectTo({ name, sentinels: [sentinel] });
        onTestFinished(() => connected.end());
        return { client, locks: open(connected.client) };
      }),
    );
    await Promise.all(opened.map(({ client, locks }) => locks.mutex(`${client} warm`).run(() => {})));
    network.fallSilent();
    await Promise.all(opened.map(({ client, locks }) => expectOutage(locks, `${client} key`)));
    network.comeBack();
    await Promise.all(opened.map(({ client, locks }) => expectRecovery(locks, `${client} key`)));
  });

  test("of Redlock are replaced, and the server behind one has a vote again", async () => {
    const group = await startRedisServers(3);
    onTestFinished(() => group.stop());
    const network = await forgetful(group.servers[0]!.port);
    const near = open(await connect("ioredis 5", group.servers[0]!.port));
    await Promise.all(
      clients.map(async (name) => {
        const ports = [network.port, group.servers[1]!.port, group.servers[2]!.port];
        const all = await Promise.all(ports.map((port) => connect(name, port)));
        const locks = createLocks(redlockStore(all), { onWarning: ignore });
        onTestFinished(() => locks.close());
        const mutex = locks.mutex(name, { ttlMs: 3_000 });
        await mutex.run(() => {});
        network.fallSilent();
        const lease = await mutex.acquire();
        await new Promise((resolve) => setTimeout(resolve, 2_000));
        network.comeBack();
        await until("it votes", async () => (await near.inspect(name)).heldCount === 1, 2 * requestTimeoutMs);
        expect(await lease.release()).toBe(true);
      }),
    );
  });
});

describe.skipIf(!canRunRedis())("redis: silent connections of a cluster", { timeout: 60_000 }, () => {
  test("are replaced with every client, and so is the one that listens", async () => {
    const cluster = await startRedisCluster();
    onTestFinished(() => cluster.stop());
    const networks = new Map<number, ForgetfulNetwork>();
    for (const { port } of cluster.servers) networks.set(port, await forgetful(port));
    const nodes = [...networks].map(([port, network]) => [`${host}:${port}`, { host, port: network.port }]);
    const map = Object.fromEntries(nodes) as Record<string, { host: string; port: number }>;
    const near = new Cluster([{ host, port: cluster.masters[0]!.port }]).on("error", ignore);
    onTestFinished(() => near.disconnect());
    const nearby = open(near);
    const [, first] = nodes[0] as [string, { host: string; port: number }];
    const io = [Cluster, Cluster6].map((Client) => new Client([first], { natMap: map }).on("error", ignore));
    const options = { rootNodes: [{ socket: first }], nodeAddressMap: map };
    const node = [
      createCluster(options).on("error", ignore),
      createCluster5(options).on("error", ignore),
    ] as const;
    await Promise.all(node.map((client) => client.connect()));
    onTestFinished(() => {
      for (const client of io) client.disconnect();
      for (const client of node) client.destroy();
    });
    const opened = ([...io, ...node] as RedisClient[]).map((client, nth) => ({ locks: open(client), nth }));
    const keys = Array.from({ length: 6 }, (_, key) => key);
    const waiters = await Promise.all(
      opened.map(async ({ locks, nth }) => {
        const lease = await nearby.mutex(`heard ${nth}`, { ttlMs: 60_000 }).acquire();
        const waiting = locks.mutex(`heard ${nth}`, { ttlMs: 60_000 }).acquire();
        await until("it waits", async () => (await nearby.inspect(`heard ${nth}`)).waitingCount === 1);
        return { lease, waiting };
      }),
    );
    const before = await listenersOf(cluster.servers);
    for (const network of networks.values()) network.fallSilent();
    await Promise.all(
      opened.flatMap(({ locks, nth }) => keys.map((key) => expectOutage(locks, `${nth}: ${key}`))),
    );
    for (const network of networks.values()) network.comeBack();
    await Promise.all(
      opened.flatMap(({ locks, nth }) => keys.map((key) => expectRecovery(locks, `${nth}: ${key}`))),
    );
    await untilOthersListen(cluster.servers, before, opened.length);
    for (const { lease, waiting } of waiters) {
      await lease.release();
      const sinceMs = performance.now();
      await (await waiting).release();
      expect.soft(performance.now() - sinceMs).toBeLessThan(requestTimeoutMs);
    }
  });
});
