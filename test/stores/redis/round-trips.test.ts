/** What lock cycles cost, in commands to a real server. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Lease, type Locks, type Store } from "holdfast";
import { redisStore } from "holdfast/redis";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../../core/claim-request.ts";
import { canRunRedis, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import { standaloneClients } from "../../engines/redis-clients.ts";

/** Commands that scripts and clients send. What a script calls is counted by itself, and is none of these. */
const counted = ["eval", "evalsha", "script|load"];

describe.skipIf(!canRunRedis())("redis: round trips", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);
  beforeEach(() => server.command("FLUSHALL"));
  afterAll(() => server?.stop());

  async function open(client = "ioredis 5", partitions = 1): Promise<{ store: Store; locks: Locks }> {
    const connected = await standaloneClients[client]!(server);
    const store = redisStore(connected.client, { partitions });
    const locks = createLocks(store);
    onTestFinished(async () => {
      await locks.close();
      connected.end();
    });
    await locks.mutex("warm").run(() => {});
    return { store, locks };
  }

  /** How many of each command an action makes the server serve. */
  async function commandsOf(action: () => Promise<unknown>): Promise<Record<string, number>> {
    await server.command("CONFIG", "RESETSTAT");
    await action();
    const info = String(await server.command("INFO", "commandstats"));
    const served = counted.flatMap((name) => {
      const calls = new RegExp(`cmdstat_${name.replace("|", "\\|")}:calls=(\\d+)`).exec(info)?.[1];
      return calls === undefined ? [] : [[name, Number(calls)] as const];
    });
    return Object.fromEntries(served);
  }

  test.each(Object.keys(standaloneClients))("%s: an acquire is one, and so is a release", async (client) => {
    const { locks } = await open(client);
    let lease: Lease | undefined;
    const acquire = async () => {
      lease = await locks.mutex("alone").acquire();
    };
    expect(await commandsOf(acquire)).toEqual({ evalsha: 1 });
    expect(await commandsOf(async () => locks.mutex("alone").tryAcquire())).toEqual({ evalsha: 1 });
    expect(await commandsOf(async () => lease?.release())).toEqual({ evalsha: 1 });
  });

  test("what is asked for in one turn goes out together, in calls of a bounded size", async () => {
    const { store } = await open();
    const requests = Array.from({ length: 1_000 }, (_, index) =>
      claimRequest(`claim-${index}`, { key: `key-${index}`, ttlMs: 60_000 }),
    );
    const first = requests.slice(0, 20);
    expect(await commandsOf(() => Promise.all(first.map((each) => store.acquire(each))))).toEqual({
      evalsha: 1,
    });
    const calls = (await commandsOf(() => Promise.all(requests.map((each) => store.acquire(each)))))[
      "evalsha"
    ];
    // Not one for each, and none so long that the server serves nobody else meanwhile.
    expect(calls).toBeGreaterThanOrEqual(5);
    expect(calls).toBeLessThanOrEqual(10);
    expect((await commandsOf(() => store.renew(requests)))["evalsha"]).toBeLessThanOrEqual(10);
    expect((await commandsOf(() => store.release(requests)))["evalsha"]).toBeLessThanOrEqual(10);
  });

  test("each partition is asked once", async () => {
    const { store } = await open("ioredis 5", 4);
    const requests = Array.from({ length: 20 }, (_, index) =>
      claimRequest(`c-${index}`, { key: `k-${index}` }),
    );
    const calls = await commandsOf(() => Promise.all(requests.map((each) => store.acquire(each))));
    expect(calls).toEqual({ evalsha: 4 });
  });

  test("a server is sent the script once, however many clients it has", async () => {
    const clients = await Promise.all(Object.keys(standaloneClients).map((name) => open(name)));
    const cycles = () =>
      Promise.all(
        clients.map(async ({ locks }, index) => {
          for (let round = 0; round < 5; round++) await locks.mutex(`own-${index}`).run(() => {});
        }),
      );
    expect(await commandsOf(cycles)).toEqual({ evalsha: 2 * 5 * clients.length });
    await server.command("SCRIPT", "FLUSH");
    expect(await commandsOf(() => clients[0]!.locks.mutex("again").run(() => {}))).toEqual({
      evalsha: 2,
      eval: 1,
    });
  });

  test("whoever waits for a holder that died asks nothing until it has expired, and then is served", async () => {
    const [{ store }, { locks }] = [await open(), await open("node-redis 6")];
    const ttlMs = 1_500;
    const dead = await store.acquire(claimRequest("dead", { key: "left", ttlMs }));
    const heldMs = performance.now();
    const waiting = locks.mutex("left", { ttlMs: 60_000 }).acquire();
    await until("somebody waits", async () => (await locks.inspect("left")).waitingCount === 1);
    const leftMs = heldMs + ttlMs - 300 - performance.now();
    expect(await commandsOf(() => sleep(Math.max(0, leftMs)))).toEqual({});
    const lease = await waiting;
    expect(lease.fence).toBeGreaterThan((dead as { fence: bigint }).fence);
    // Its own heartbeat is due only after 20 s.
    expect(performance.now() - heldMs).toBeLessThan(ttlMs + 5_000);
  });

  test("idle locks leave no key behind", async () => {
    const { locks } = await open();
    await Promise.all(Array.from({ length: 50 }, (_, index) => locks.mutex(`idle-${index}`).run(() => {})));
    const keys = (await server.command("KEYS", "*")) as string[];
    expect(keys.sort()).toEqual(["holdfast:{0}:locks", "holdfast:{0}:partitions"]);
    // The mark of the fences.
    expect(await server.command("HKEYS", "holdfast:{0}:locks")).toEqual([""]);
  });
});
