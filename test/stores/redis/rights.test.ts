import { readdirSync, readFileSync } from "node:fs";
import { type ClaimRequest, createLocks, type Locks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import {
  type Connected,
  type Credentials,
  clusterClients,
  sentinelClients,
  standaloneClients,
} from "../../engines/redis-clients.ts";
import {
  type RedisCluster,
  type RedisSentinels,
  startRedisCluster,
  startRedisSentinels,
} from "../../engines/redis-topologies.ts";
import { createUser, documentedRights } from "./rights.ts";

async function open(connecting: Promise<Connected>): Promise<Locks> {
  const { client, end } = await connecting;
  const locks = createLocks(redisStore(client));
  onTestFinished(async () => {
    await locks.close();
    end();
  });
  return locks;
}

/** What `process.emitWarning` is told meanwhile, by code. */
function warnings(): string[] {
  const codes: string[] = [];
  const listener = (warning: Error & { code?: string }) => codes.push(warning.code ?? warning.name);
  process.on("warning", listener);
  onTestFinished(() => void process.off("warning", listener));
  return codes;
}

/** One of everything: a grant at once, a wait that ends with a push, a listing, a release. */
async function useAll(first: Locks, second: Locks): Promise<void> {
  const lease = await first.mutex("rights").acquire();
  const waiting = second.mutex("rights", { ttlMs: 60_000 }).acquire({ waitMs: 10_000 });
  await until("somebody waits", async () => (await first.inspect("rights")).waitingCount === 1);
  await lease.release();
  const next = await waiting;
  expect(next.fence).toBeGreaterThan(lease.fence);
  const keys: string[] = [];
  for await (const { key } of first.list({ prefix: "rights" })) keys.push(key);
  expect(keys).toEqual(["rights"]);
  await next.release();
}

describe.skipIf(!canRunRedis())("redis: rights", () => {
  let server: RedisServer;
  let cluster: RedisCluster;
  let sentinels: RedisSentinels;
  let user: Credentials;

  beforeAll(async () => {
    [server, cluster, sentinels] = await Promise.all([
      startRedis(),
      startRedisCluster(),
      startRedisSentinels(),
    ]);
    const data = [sentinels.master, ...sentinels.replicas];
    user = await createUser([server, ...cluster.servers, ...data], "holdfast");
  }, 120_000);

  afterAll(() => Promise.all([server?.stop(), cluster?.stop(), sentinels?.stop()]));

  test.each(Object.entries(clusterClients))(
    "those documented suffice in a cluster, through %s",
    async (_, connect) => {
      const codes = warnings();
      await useAll(await open(connect(cluster, user)), await open(connect(cluster, user)));
      expect(codes).not.toContain("NO_PUSH");
    },
  );

  test.each(Object.entries(sentinelClients))(
    "those documented suffice with sentinels, through %s",
    async (_, connect) => {
      const codes = warnings();
      await useAll(await open(connect(sentinels, user)), await open(connect(sentinels, user)));
      expect(codes).not.toContain("NO_PUSH");
    },
  );

  test.each(Object.entries(standaloneClients))(
    "without those to subscribe, %s is slower and says so once",
    async (_, connect) => {
      const silent = await createUser([server], "silent", "resetchannels");
      const codes = warnings();
      const first = await open(connect(server, silent));
      const second = await open(connect(server, silent));
      const lease = await first.mutex("silent").acquire();
      const waiting = second.mutex("silent", { ttlMs: 1_500 }).acquire({ waitMs: 10_000 });
      await until("somebody waits", async () => (await first.inspect("silent")).waitingCount === 1);
      await lease.release();
      await expect(waiting).resolves.toMatchObject({ held: true });
      await (await waiting).release();
      // Once for each store.
      expect(codes.filter((code) => code === "NO_PUSH")).toHaveLength(2);
    },
  );

  /**
   * The interleaving: a script applies a batch. An operation on a spread record moves claims between its sets, and is written down
   * in the record's text at the end. One that comes later meets a key that the user may not touch, and raises. If the script ended
   * there, the record would tell of fewer holders than there are, and more would be let in.
   */
  test("a lock whose claims the user may not touch fails alone, and what others of its batch did is whole", async () => {
    const keys = ["resetkeys", "~*:locks", "~*:partitions", "~*:mine*"];
    const tenant = await createUser([server], "tenant", ...keys);
    const { client, end } = await standaloneClients["ioredis 5"]!(server, tenant);
    const store = redisStore(client);
    onTestFinished(async () => {
      await store.close();
      end();
    });
    const claim = (key: string, id: string): ClaimRequest => ({
      ...{ key, id, token: id, owner: id, wait: true, weight: 1, limit: 2, priority: 0 },
      ...{ ttlMs: 60_000, info: "", application: "" },
    });
    // A record that several have held is spread, also while it has one holder.
    await store.acquire(claim("mine", "1"));
    await store.acquire(claim("mine", "2"));
    await store.release([claim("mine", "2")]);

    // So is one that somebody asks for who is not its holder.
    await store.acquire(claim("theirs", "1"));

    const batch = [claim("mine", "3"), claim("theirs", "2"), claim("mine too", "1")];
    const [second, refused, other] = await Promise.allSettled(batch.map((request) => store.acquire(request)));

    expect(second).toMatchObject({ value: { state: "held" } });
    // Versions differ in the code that they answer within a script.
    const code = expect.stringMatching(/^(UNAUTHORIZED|STORE_FAILURE)$/);
    expect(refused).toMatchObject({ reason: { code, key: "theirs" } });
    expect(other).toMatchObject({ value: { state: "held" } });
    expect(await store.acquire(claim("mine", "4"))).toMatchObject({ state: "waiting" });

    // Also when it comes first.
    const again = [claim("theirs", "3"), claim("mine three", "1")];
    const [first, next] = await Promise.allSettled(again.map((request) => store.acquire(request)));
    expect(first).toMatchObject({ reason: { code, key: "theirs" } });
    expect(next).toMatchObject({ value: { state: "held" } });
  });

  test.each(Object.entries(standaloneClients))(
    "without INFO there is no check of the version, through %s",
    async (_, connect) => {
      const uninformed = await createUser([server], "uninformed", "-info");
      await useAll(await open(connect(server, uninformed)), await open(connect(server, uninformed)));
    },
  );

  test.each([
    ["the script", "-eval"],
    ["its keys", "resetkeys"],
  ])("without those to %s, it is told where they are listed", async (_, change) => {
    const poor = await createUser([server], `poor${change}`, change);
    const locks = await open(standaloneClients["ioredis 5"]!(server, poor));
    await expect(locks.mutex("poor").tryAcquire()).rejects.toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining("docs/stores/redis.md"),
    });
  });

  test("without a command of the script, it is told the server's words", async () => {
    const poor = await createUser([server], "poorest", "-hmget");
    const locks = await open(standaloneClients["ioredis 5"]!(server, poor));
    const error = await locks
      .mutex("poor")
      .tryAcquire()
      .catch((error: unknown) => error);
    expect(["UNAUTHORIZED", "STORE_FAILURE"]).toContain((error as { code: string }).code);
  });
});

test("redis: the documented rights are those that the scripts use, and no more", () => {
  const folder = new URL("../../../src/stores/redis/", import.meta.url);
  const sources = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), "utf8"));
  const used = sources.flatMap((text) =>
    [...text.matchAll(/(?:call|try)\('([A-Z]+)'/g)].map(([, name]) => `+${name}`),
  );
  const outside = ["+eval", "+evalsha", "+ping", "+subscribe", "+unsubscribe"];
  const clients = ["+cluster|slots", "+cluster|info"];
  const expected = new Set([...used.map((name) => name.toLowerCase()), ...outside, ...clients]);
  const documented = documentedRights().filter((word) => word.startsWith("+"));
  expect(documented.sort()).toEqual([...expected].sort());
});
