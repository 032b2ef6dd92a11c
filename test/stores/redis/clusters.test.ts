/** What is peculiar to a cluster, apart from failovers: the number of partitions, what goes where, and a slot that nobody serves. */
import type { ClaimRef, HoldfastError, Store } from "holdfast";
import { type RedisStoreOptions, redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, until } from "../../engines/redis.ts";
import { clusterClients } from "../../engines/redis-clients.ts";
import { type RedisCluster, startRedisCluster } from "../../engines/redis-topologies.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { failure } from "../failure.ts";

const request = claimRequest("id", { key: "key", owner: "owner", ttlMs: 1_000, wait: false });
const clients = Object.entries(clusterClients);

describe.skipIf(!canRunRedis())("redis: a cluster", { timeout: 60_000 }, () => {
  let cluster: RedisCluster;

  beforeAll(async () => {
    cluster = await startRedisCluster();
  }, 60_000);

  afterAll(() => cluster?.stop());

  async function open(connect: (typeof clients)[number][1], options: RedisStoreOptions = {}): Promise<Store> {
    const { client, end } = await connect(cluster);
    const store = redisStore(client, options);
    onTestFinished(async () => {
      await store.close();
      end();
    });
    return store;
  }

  test("a client of one of its servers is told to be a cluster client", async () => {
    const single = cluster.masters.map(({ port }) => new Redis(port, "127.0.0.1"));
    onTestFinished(() => {
      for (const client of single) client.disconnect();
    });
    const codes = single.map((client) =>
      redisStore(client)
        .acquire(request)
        .then(
          (answer) => answer.state,
          (error: HoldfastError) => `${error.code} ${/\bcluster client\b/.exec(error.message)}`,
        ),
    );
    // One of them happens to have the keys, and writes down that there is one partition.
    expect((await Promise.all(codes)).sort()).toEqual([
      "INVALID_ARGUMENT cluster client",
      "INVALID_ARGUMENT cluster client",
      "held",
    ]);
    for (const { port } of cluster.masters) await flush(port);
  });

  test.each(clients)("%s: hands nothing to a listener that has left", async (_, connect) => {
    const store = await open(connect);
    const told: ClaimRef[] = [];
    const leave = store.onGrant("owner", (refs) => told.push(...refs));
    const publisher = new Redis(cluster.masters[0]!.port, "127.0.0.1");
    onTestFinished(() => publisher.disconnect());
    const publish = () => publisher.publish("holdfast:wake:owner", '["key","id","1"]');
    await until("it listens", async () => {
      await publish();
      return told.length > 0;
    });
    const before = told.length;
    void publish();
    // By then the message has arrived, and nobody has read it yet.
    const endMs = performance.now() + 100;
    while (performance.now() < endMs);
    leave();
    await publish();
    for (let trip = 0; trip < 20; trip++) await publisher.ping();
    expect(told.length).toBe(before);
  });

  test.each(clients)("%s: many owners hear their grants, and Node warns of no leak", async (_, connect) => {
    const warnings: Error[] = [];
    const listener = (warning: Error) => warnings.push(warning);
    process.on("warning", listener);
    onTestFinished(() => void process.off("warning", listener));
    const store = await open(connect, { keyPrefix: "many" });
    const told = new Map<string, string[]>();
    const owners = Array.from({ length: 20 }, (_, nth) => `owner-${nth}`);
    for (const owner of owners) {
      told.set(owner, []);
      store.onGrant(owner, (refs) => told.get(owner)?.push(...refs.map(({ id }) => id)));
    }
    const publisher = new Redis(cluster.masters[0]!.port, "127.0.0.1");
    onTestFinished(() => publisher.disconnect());
    for (const owner of owners) {
      await until(`${owner} listens`, async () => {
        await publisher.publish(`many:wake:${owner}`, `["key","of ${owner}","1"]`);
        return told.get(owner)!.length > 0;
      });
    }
    for (const owner of owners) expect(new Set(told.get(owner))).toEqual(new Set([`of ${owner}`]));
    expect(warnings.map(({ name }) => name)).toEqual([]);
  });

  test.each(clients)(
    "%s: another number of partitions than that of others is told",
    async (name, connect) => {
      const keyPrefix = `of ${name}`;
      await (await open(connect, { keyPrefix })).acquire(request);
      const store = await open(connect, { keyPrefix, partitions: 8 });
      // The locks that both would have in the same place are refused as well as the others.
      const keys = Array.from({ length: 40 }, (_, index) => `key-${index}`);
      const errors = await Promise.all(keys.map((key) => failure(store.acquire({ ...request, key }))));
      expect(new Set(errors.map(({ code }) => code))).toEqual(new Set(["INVALID_ARGUMENT"]));
      expect(errors[0]?.message).toMatch(/8 here and 16 elsewhere\. Use 16.*delete "of .*:\{0\}:partitions"/);
    },
  );

  test.each(clients)(
    "%s: one turn is one call for each partition, to the server that has it",
    async (_, connect) => {
      const store = await open(connect, { keyPrefix: "spread" });
      const requests = Array.from({ length: 200 }, (_, index) =>
        claimRequest(`claim-${index}`, { key: `key-${index}`, ttlMs: 60_000 }),
      );
      const acquireAll = () => Promise.all(requests.map((each) => store.acquire(each)));
      // The first use, and with it the script, is over.
      await acquireAll();
      const partitions = await Promise.all(cluster.masters.map((master) => partitionsOf(master, "spread")));
      expect(partitions.flat().sort((a, b) => a - b)).toEqual(Array.from({ length: 16 }, (_, tag) => tag));

      for (const action of [acquireAll, () => store.renew(requests), () => store.release(requests)]) {
        await Promise.all(cluster.masters.map((master) => master.command("CONFIG", "RESETSTAT")));
        await action();
        const calls = await Promise.all(cluster.masters.map(callsOf));
        expect(calls).toEqual(partitions.map(({ length }) => length));
      }
    },
  );

  test("a slot that nobody serves is an outage, and passes", async () => {
    const stores = await Promise.all(
      clients.map(([, connect]) => open(connect, { keyPrefix: "gap", partitions: 1 })),
    );
    await Promise.all(stores.map((store, index) => store.acquire({ ...request, key: `fine-${index}` })));
    const slot = Number(await cluster.masters[0]!.command("CLUSTER", "KEYSLOT", "gap:{0}:locks"));
    const master = cluster.masters[Math.floor((slot * cluster.masters.length) / 16_384)]!;
    // Until all agree, some go on sending clients to the one that has given it up.
    await until("nobody serves it", async () => {
      const told = await Promise.all(
        cluster.servers.map(async (server) => {
          await server.command("CLUSTER", "DELSLOTS", slot).catch(() => {});
          return String(await server.command("CLUSTER", "INFO"));
        }),
      );
      return told.every((info) => info.includes("cluster_slots_assigned:16383"));
    });
    const told = await Promise.all(stores.map((store) => failure(store.acquire(request))));
    await master.command("CLUSTER", "ADDSLOTS", slot);
    expect(told.map(({ code }) => code)).toEqual(stores.map(() => "STORE_UNAVAILABLE"));
    // ioredis tries for a while, and then tells of the last answer in words of its own.
    const answers = told.map(({ cause }) => (cause as Error).message);
    expect(answers).toEqual(stores.map(() => expect.stringContaining("CLUSTERDOWN")));
    await until("all are served again", async () => {
      for (const store of stores) await store.release([request]);
      return true;
    });
  });
});

/** The partitions whose locks a server has. */
async function partitionsOf(server: RedisServer, keyPrefix: string): Promise<number[]> {
  const keys = (await server.command("KEYS", `${keyPrefix}:{*}:locks`)) as string[];
  return keys.map((key) => Number(/\{(\d+)\}/.exec(key)?.[1]));
}

/** How many calls of scripts a server has served since its counters were reset. */
async function callsOf(server: RedisServer): Promise<number> {
  const stats = String(await server.command("INFO", "commandstats"));
  return [...stats.matchAll(/^cmdstat_eval(?:sha)?:calls=(\d+)/gm)].reduce(
    (sum, [, n]) => sum + Number(n),
    0,
  );
}

async function flush(port: number): Promise<void> {
  const client = new Redis(port, "127.0.0.1");
  await client.flushall();
  client.disconnect();
}
