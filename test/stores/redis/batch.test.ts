import { type ClaimRequest, UNLIMITED } from "holdfast";
import { type IoRedisClient, redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../../core/claim-request.ts";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";

describe.skipIf(!canRunRedis())("redis: what is asked for at once", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);

  afterAll(() => server?.stop());

  /** A store that was used before, the script calls that it makes, and a way to hold the replies to them back. */
  async function open() {
    const redis = new Redis(server.port, "127.0.0.1");
    let replies: Promise<void> | undefined;
    let calls = 0;
    const client: IoRedisClient = new Proxy(redis, {
      get(target, name) {
        if (name !== "call") return Reflect.get(target, name, target);
        return async (...args: [string, ...string[]]) => {
          calls++;
          const reply = await target.call(...args);
          await replies;
          return reply;
        };
      },
    });
    const store = redisStore(client);
    onTestFinished(async () => {
      await store.close();
      redis.disconnect();
    });
    await store.acquire(claimRequest("first", { key: "first" }));
    return {
      store,
      holdBack(until: Promise<void>) {
        replies = until;
      },
      /** How many calls it was since the last time. */
      calls() {
        const counted = calls;
        calls = 0;
        return counted;
      },
    };
  }

  /** By then all that was asked for is under way. */
  async function sent(): Promise<void> {
    for (let round = 0; round < 3; round++) await new Promise((resolve) => setImmediate(resolve));
  }

  test("goes in two halves, and what is asked for meanwhile in one", async () => {
    const { store, calls, holdBack } = await open();
    let answer = () => {};
    holdBack(
      new Promise((resolve) => {
        answer = resolve;
      }),
    );
    calls();
    const ask = (name: string, count: number) =>
      Array.from({ length: count }, (_, nth) =>
        store.acquire(claimRequest(`${name}${nth}`, { key: `${name}${nth}` })),
      );
    const few = ask("few", 31);
    await sent();
    expect(calls()).toBe(1);
    answer();
    await Promise.all(few);
    holdBack(
      new Promise((resolve) => {
        answer = resolve;
      }),
    );
    const halves = ask("half", 100);
    await sent();
    expect(calls()).toBe(2);
    const meanwhile = ask("meanwhile", 100);
    await sent();
    expect(calls()).toBe(1);
    const tooMany = ask("many", 450);
    await sent();
    expect(calls()).toBe(3);
    answer();
    for (const { state } of await Promise.all([...halves, ...meanwhile, ...tooMany]))
      expect(state).toBe("held");
  });

  test("is answered to each its own, with fences that grow in the order of asking", async () => {
    const { store } = await open();
    const request = (name: string, asked: Partial<ClaimRequest> = {}) =>
      claimRequest(name, { key: name, ...asked });
    const held = await Promise.all([
      store.acquire(request("a", { ttlMs: 1_000 })),
      store.acquire(request("b", { ttlMs: 1_000 })),
      store.acquire(request("c", { ttlMs: 2_000, limit: UNLIMITED })),
      store.renew([request("first")]).then(([answer]) => answer),
      store.acquire(request("d", { ttlMs: 2_000, limit: UNLIMITED })),
      store.acquire(request("e", { ttlMs: 2_000, limit: UNLIMITED })),
    ]);
    expect(held.map((answer) => answer?.state === "held" && answer.expiresInMs)).toEqual([
      1_000,
      1_000,
      2_000,
      claimRequest("first").ttlMs,
      2_000,
      2_000,
    ]);
    const fences = held.map((answer) => (answer?.state === "held" ? answer.fence : 0n));
    const granted = fences.filter((_, nth) => nth !== 3);
    expect(granted).toEqual([...granted].sort((a, b) => Number(a - b)));
    expect(new Set(fences).size).toBe(6);
    expect(fences[3]).toBeLessThan(fences[0] as bigint);
  });
});
