/**
 * Cost without a clock: the commands that the server executes for one operation are counted, so that an operation that
 * starts to walk through its claims fails here, on any machine and under any load.
 */
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ClaimRequest, type Store, UNLIMITED } from "../../../src/core/store.ts";
import { redisStore } from "../../../src/stores/redis/index.ts";
import { claimRequest } from "../../core/claim-request.ts";
import { type RedisServer, startRedis } from "../../engines/redis.ts";

const CLAIMS = 10_000;
const FEWER_CLAIMS = 20;
const TTL_MS = 3_600_000;

/** What costs the same, or a little more for twice the claims. */
const cheapCommands = new Set(
  "eval evalsha time get set del hget hset hdel hlen hmget zadd zrem zcard zrange zrangebyscore pexpireat publish".split(
    " ",
  ),
);

let server: RedisServer;
let redis: Redis;
let store: Store;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.port, "127.0.0.1");
  store = redisStore(redis, { maxWaiters: 2 * CLAIMS });
}, 120_000);

afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

const crowds: readonly { name: string; asked: Partial<ClaimRequest> }[] = [
  { name: "waiters", asked: { limit: 1 } },
  { name: "readers", asked: { limit: UNLIMITED } },
];

const idOf = (index: number) => `c${index}`;

async function gather(key: string, claims: number, asked: Partial<ClaimRequest>): Promise<void> {
  const requests = Array.from({ length: claims }, (_, index) =>
    claimRequest(idOf(index), { key, ttlMs: TTL_MS, ...asked }),
  );
  await Promise.all(requests.map((request) => store.acquire(request)));
}

/** Which commands the server executes for an operation, and how often. */
async function commandsOf(operation: () => Promise<unknown>): Promise<Map<string, number>> {
  await redis.config("RESETSTAT");
  await operation();
  const stats = await redis.info("commandstats");
  const counted = [...stats.matchAll(/^cmdstat_(\S+):calls=(\d+)/gm)].map(
    ([, name = "", calls]) => [name, Number(calls)] as const,
  );
  return new Map(counted.filter(([name]) => !name.startsWith("config") && name !== "info"));
}

describe.each(crowds)("redis: among $name", ({ name, asked }) => {
  const operations: readonly { what: string; run: (key: string, claims: number) => Promise<unknown> }[] = [
    {
      what: "an acquire that waits",
      run: (key) => store.acquire(claimRequest("wait", { key, ttlMs: TTL_MS, limit: 1 })),
    },
    {
      what: "a try",
      run: (key) => store.acquire(claimRequest("try", { key, ttlMs: TTL_MS, limit: 1, wait: false })),
    },
    {
      what: "an acquire once more",
      run: (key) => store.acquire(claimRequest(idOf(7), { key, ttlMs: 2 * TTL_MS, ...asked })),
    },
    { what: "a heartbeat", run: (key) => renew(key, 5) },
    { what: "a heartbeat of the last", run: (key, claims) => renew(key, claims - 1) },
    { what: "a release of the last", run: (key, claims) => release(key, claims - 1) },
    { what: "a release of one amid the others", run: (key, claims) => release(key, claims / 2) },
    { what: "a release of the first", run: (key) => release(key, 0) },
  ];
  const renew = (key: string, index: number) =>
    store.renew([{ key, id: idOf(index), token: idOf(index), ttlMs: 3 * TTL_MS }]);
  const release = (key: string, index: number) =>
    store.release([{ key, id: idOf(index), token: idOf(index) }]);

  test("no operation takes more commands with 10,000 claims than with 20", { timeout: 60_000 }, async () => {
    const few = `few-${name}`;
    const many = `many-${name}`;
    await gather(few, FEWER_CLAIMS, asked);
    await gather(many, CLAIMS, asked);
    for (const { what, run } of operations) {
      const least = await commandsOf(() => run(few, FEWER_CLAIMS));
      const most = await commandsOf(() => run(many, CLAIMS));
      expect([...most], what).toEqual([...least]);
      expect([...most.keys()].filter((command) => !cheapCommands.has(command))).toEqual([]);
    }
    // Nor may the part that every operation reads whole.
    expect(await redis.strlen(`holdfast:{0}:lock:${many}`)).toBeLessThan(200);
  });
});

test("redis: the count of commands notices a walk through all claims", async () => {
  const walk = "for i = 1, 1000 do redis.call('HGET', 'none', i) end";
  const counted = await commandsOf(() => redis.eval(walk, 0));
  expect(counted.get("hget")).toBe(1_000);
});
