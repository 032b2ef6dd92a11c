/**
 * Cost without a clock: what the script asks of Redis for one operation is counted, in commands and in bytes of their
 * arguments and replies. So an operation that starts to walk through its claims, in one command or in many, fails here,
 * on any machine and under any load.
 */
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ClaimRequest, type Store, UNLIMITED } from "../../../src/store/store.ts";
import { redisStore } from "../../../src/stores/redis/index.ts";
import { SCRIPT } from "../../../src/stores/redis/script.ts";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { START_US } from "./differential-histories.ts";
import { TimedClient, timedScript } from "./timed-script.ts";

const CLAIMS = 10_000;
const FEWER_CLAIMS = 20;
const TTL_MS = 3_600_000;

/** Stands before the script, and counts what it asks for and gets. */
const METER = `
local counted = redis.call
local function bytes(value)
  if type(value) ~= 'table' then return #tostring(value) end
  local sum = 0
  for _, part in ipairs(value) do sum = sum + bytes(part) end
  return sum
end
local redis = { call = function(...)
  local reply = counted(...)
  counted('HINCRBY', 'meter', 'commands', 1)
  counted('HINCRBY', 'meter', 'bytes', bytes({ ... }) + bytes(reply))
  return reply
end }
redis.pcall = redis.call
`;

/** Longer names and numbers are more bytes. A walk through 10,000 claims would be a hundred times as many. */
const MOST_BYTES = 1.2;

let server: RedisServer;
let redis: Redis;
let store: Store;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.port, "127.0.0.1");
  const client = new TimedClient(redis, METER + timedScript(SCRIPT));
  client.us = START_US;
  store = redisStore(client, { maxWaiters: 2 * CLAIMS });
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

interface Cost {
  readonly commands: number;
  readonly bytes: number;
}

async function costOf(operation: () => Promise<unknown>): Promise<Cost> {
  await redis.del("meter");
  await operation();
  const { commands, bytes } = await redis.hgetall("meter");
  return { commands: Number(commands), bytes: Number(bytes) };
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

  test("no operation costs more with 10,000 claims than with 20", { timeout: 60_000 }, async () => {
    const few = `few-${name}`;
    const many = `many-${name}`;
    await gather(few, FEWER_CLAIMS, asked);
    await gather(many, CLAIMS, asked);
    for (const { what, run } of operations) {
      const least = await costOf(() => run(few, FEWER_CLAIMS));
      const most = await costOf(() => run(many, CLAIMS));
      expect.soft(most.commands, `commands of ${what}`).toBeLessThanOrEqual(least.commands);
      expect.soft(most.bytes, `bytes of ${what}`).toBeLessThan(least.bytes * MOST_BYTES);
    }
  });
});

test("redis: the meter notices a look at all claims", async () => {
  const key = "walked";
  await gather(key, 100, { limit: UNLIMITED });
  const { commands, bytes } = await costOf(() => store.look({ key, maxClaims: 1 }));
  expect(commands).toBeGreaterThan(1);
  expect(bytes).toBeGreaterThan(100 * idOf(0).length);
});
