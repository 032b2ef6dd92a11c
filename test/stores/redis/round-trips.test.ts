/** What lock cycles cost, in commands to a real server. */
import {
  type Clock,
  createLocks,
  type KeyStatus,
  type Lease,
  type Locks,
  type Store,
  systemClock,
} from "holdfast";
import { redisStore } from "holdfast/redis";
import { ManualClock } from "holdfast/testing";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { startProxy } from "../../engines/proxy.ts";
import { canRunRedis, type RedisServer, startRedis, until } from "../../engines/redis.ts";
import { standaloneClients } from "../../engines/redis-clients.ts";
import { claimRequest } from "../../record/claim-request.ts";

/** Commands that scripts and clients send. What a script calls is counted by itself, and is none of these. */
const counted = ["eval", "evalsha", "script|load"];

describe.skipIf(!canRunRedis())("redis: round trips", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);
  beforeEach(() => server.command("FLUSHALL"));
  afterAll(() => server?.stop());

  async function open(
    client = "ioredis 5",
    partitions = 1,
    clock: Clock = systemClock,
    port = server.port,
  ): Promise<{ store: Store; locks: Locks }> {
    const connected = await standaloneClients[client]!({ port });
    const store = redisStore(connected.client, { partitions });
    const locks = createLocks(store, { clock });
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

  async function look(store: Store, key: string): Promise<KeyStatus> {
    return (await store.look({ key, maxClaims: 5 })).keys[0]!;
  }

  /** The time by the clock of the server. */
  async function serverMs(): Promise<number> {
    const [seconds, micros] = (await server.command("TIME")) as [string, string];
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  }

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

  test("whoever waits for a holder that died asks nothing until it has expired, and then once", async () => {
    const { store } = await open();
    const clock = new ManualClock();
    const { locks } = await open("node-redis 6", 1, clock);
    const ttlMs = 1_500;
    const dead = await store.acquire(claimRequest("dead", { key: "left", ttlMs }));
    if (dead.state !== "held") throw new Error("It is not held.");
    // Its own heartbeat is due only after 20 s of its time.
    const waiting = locks.mutex("left", { ttlMs: 60_000 }).acquire();
    await until("somebody waits", async () => (await look(store, "left")).waitingCount === 1);
    const leftMs = dead.acquiredAtMs + ttlMs - (await serverMs());
    expect(await commandsOf(() => clock.advance(Math.max(0, leftMs / 2)))).toEqual({});
    await until("the claim has expired", async () => (await serverMs()) > dead.acquiredAtMs + ttlMs);
    const commands = await commandsOf(async () => {
      await clock.advance(ttlMs);
      await waiting;
    });
    // One question that is answered with the grant, and the heartbeat from which the lease counts.
    expect(commands["evalsha"]).toBeLessThanOrEqual(2);
    const [held] = (await look(store, "left")).held;
    expect(held).toMatchObject({ fence: (await waiting).fence });
    expect(held!.acquiredAtMs).toBeGreaterThanOrEqual(dead.acquiredAtMs + ttlMs);
  });

  test.each(Object.keys(standaloneClients))(
    "%s: a message that is lost costs one heartbeat, and no more",
    async (client) => {
      const proxy = await startProxy(server.port);
      onTestFinished(() => proxy.stop());
      const clock = new ManualClock();
      const { store } = await open();
      const { locks } = await open(client, 1, clock, proxy.port);
      const ttlMs = 30_000;
      const holder = claimRequest("holder", { key: "lost", ttlMs: 120_000 });
      await store.acquire(holder);
      const waiting = locks.mutex("lost", { ttlMs }).acquire();
      await until("somebody waits", async () => (await look(store, "lost")).waitingCount === 1);
      let isServed = false;
      void waiting.then(() => {
        isServed = true;
      });
      let lost = 0;
      proxy.decide(({ direction, bytes }) => {
        if (direction === "request" || !bytes.includes("holdfast:wake:")) return "pass";
        lost++;
        return "lose";
      });
      await store.release([holder]);
      await until("the message is lost", async () => lost === 1);
      // Granted, and nobody there knows of it.
      expect(await look(store, "lost")).toMatchObject({ heldCount: 1, waitingCount: 0 });
      expect(await commandsOf(() => clock.advance(ttlMs / 3 - 1_000))).toEqual({});
      expect(isServed).toBe(false);
      await clock.advance(1_000);
      const lease = await waiting;
      expect(lost).toBe(1);
      expect(lease.held).toBe(true);
      expect(await look(store, "lost")).toMatchObject({ heldCount: 1, fence: lease.fence });
    },
  );

  test("idle locks leave no key behind", async () => {
    const { locks } = await open();
    await Promise.all(Array.from({ length: 50 }, (_, index) => locks.mutex(`idle-${index}`).run(() => {})));
    const keys = (await server.command("KEYS", "*")) as string[];
    expect(keys.sort()).toEqual(["holdfast:{0}:locks", "holdfast:{0}:partitions"]);
    // The mark of the fences.
    expect(await server.command("HKEYS", "holdfast:{0}:locks")).toEqual([""]);
  });
});
