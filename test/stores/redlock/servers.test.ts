/** Five real servers, some of which are killed, stopped and brought back empty while a lock is in use. */
import { createLocks, HoldfastError, type Lease, type Locks } from "holdfast";
import { redlockStore } from "holdfast/redlock";
import { Redis } from "ioredis";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type RedisServer, startRedis } from "../../engines/redis.ts";

const SERVERS = 5;
const TTL_MS = 1_500;

let servers: RedisServer[] = [];
let opened: { locks: Locks; clients: Redis[] }[] = [];

beforeEach(async () => {
  servers = await Promise.all(Array.from({ length: SERVERS }, () => startRedis()));
}, 120_000);

afterEach(async () => {
  for (const { locks, clients } of opened) {
    await locks.close();
    for (const client of clients) client.disconnect();
  }
  opened = [];
  await Promise.all(servers.map((server) => server.stop()));
});

function client(): Locks {
  const clients = servers.map(({ port }) => {
    const redis = new Redis(port, "127.0.0.1", { retryStrategy: () => 50 });
    redis.on("error", () => {});
    return redis;
  });
  const locks = createLocks(redlockStore(clients), { onWarning: () => {} });
  opened.push({ locks, clients });
  return locks;
}

function kill(node: number): void {
  servers[node]?.process.kill("SIGKILL");
}

/** Several clients that take turns, and write down who was there when, and with which fence. */
class Load {
  readonly fences: bigint[] = [];
  readonly errors: unknown[] = [];
  overlaps = 0;
  readonly #inside = new Set<Lease>();
  #ended = false;
  readonly #working: Promise<void>[];

  constructor(clients: number) {
    this.#working = Array.from({ length: clients }, () => this.#work(client()));
  }

  async #work(locks: Locks): Promise<void> {
    const mutex = locks.mutex("load", { ttlMs: TTL_MS });
    while (!this.#ended) {
      try {
        const lease = await mutex.acquire();
        this.fences.push(lease.fence);
        this.#inside.add(lease);
        // A lease that is lost is known to be, so only those who believe count.
        if ([...this.#inside].filter(({ held }) => held).length > 1) this.overlaps++;
        await pause(5);
        this.#inside.delete(lease);
        await lease.release();
      } catch (error) {
        this.errors.push(error);
        await pause(20);
      }
    }
  }

  /** Waits until there are so many grants more. */
  async more(grants: number): Promise<void> {
    const goal = this.fences.length + grants;
    for (let waited = 0; this.fences.length < goal; waited += 20) {
      expect(waited, `${this.fences.length} of ${goal} grants`).toBeLessThan(15_000);
      await pause(20);
    }
  }

  async end(): Promise<void> {
    this.#ended = true;
    await Promise.all(this.#working);
    expect(this.overlaps).toBe(0);
    expect(this.fences).toEqual([...this.fences].sort((a, b) => (a < b ? -1 : 1)));
    expect(new Set(this.fences).size).toBe(this.fences.length);
    const codes = this.errors.map((error) => (error instanceof HoldfastError ? error.code : `${error}`));
    expect(codes.filter((code) => code !== "STORE_UNAVAILABLE" && code !== "LEASE_LOST")).toEqual([]);
  }
}

describe("redlock: with real servers", () => {
  test("work goes on when one of five is killed, and then another", { timeout: 60_000 }, async () => {
    const load = new Load(4);
    await load.more(20);
    kill(0);
    await load.more(20);
    kill(3);
    await load.more(20);
    await load.end();
  });

  test("work goes on when a server hangs, and when it goes on", { timeout: 60_000 }, async () => {
    const load = new Load(3);
    await load.more(10);
    servers[0]?.process.kill("SIGSTOP");
    await load.more(20);
    servers[0]?.process.kill("SIGCONT");
    await load.more(20);
    await load.end();
  });

  test("with three of five gone nothing is contended: the store is unavailable", {
    timeout: 60_000,
  }, async () => {
    const locks = client();
    const mutex = locks.mutex("gone", { ttlMs: TTL_MS });
    await (await mutex.acquire()).release();
    for (const node of [0, 2, 4]) kill(node);
    await expect(mutex.tryAcquire()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("a lease outlives a rolling restart of servers that keep nothing", { timeout: 60_000 }, async () => {
    const locks = client();
    const lease = await locks.mutex("rolling", { ttlMs: TTL_MS }).acquire();
    const { fence } = lease;
    for (const [node, server] of servers.entries()) {
      await server.stop();
      servers[node] = await startRedis([], server.port);
      // A heartbeat and a half: the claim is put back where it was lost.
      await pause(TTL_MS / 2);
      expect(lease.held).toBe(true);
    }
    expect(lease.fence).toBe(fence);
    await expect(client().mutex("rolling").tryAcquire()).resolves.toBe(null);
    expect(await lease.release()).toBe(true);
  });
});

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
