import type { ClaimRef, RenewAnswer } from "holdfast";
import { type IoRedisClient, redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis, type RedisServer, startRedis } from "../../engines/redis.ts";
import { claimRequest } from "../../record/claim-request.ts";

const first = claimRequest("first", { key: "first", ttlMs: 60_000 });

describe.skipIf(!canRunRedis())("redis: what is asked for at once", () => {
  let server: RedisServer;

  beforeAll(async () => {
    server = await startRedis();
  }, 60_000);

  afterAll(() => server?.stop());

  /** A store that was used before, the script calls that it makes, and a way to hold the replies to them back. */
  async function open(onCall = () => {}) {
    const redis = new Redis(server.port, "127.0.0.1");
    await redis.flushall();
    let replies: Promise<void> | undefined;
    let calls = 0;
    let replied = 0;
    const client: IoRedisClient = new Proxy(redis, {
      get(target, name) {
        if (name !== "call") return Reflect.get(target, name, target);
        return async (...args: [string, ...string[]]) => {
          calls++;
          onCall();
          const reply = await target.call(...args);
          replied++;
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
    await store.acquire(first);
    return {
      store,
      holdBack(until: Promise<void>) {
        replies = until;
        replied = 0;
      },
      /** Resolves when so many replies are held back. */
      async heldBack(count: number): Promise<void> {
        while (replied < count) await new Promise((resolve) => setImmediate(resolve));
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

  /*
   * 1. Two calls are written one right after the other. The server has been asleep, and by the time that it is awake it reads both.
   * 2. It replies to both with one write. The client hands both replies out in the same turn.
   * 3. If all callers went on in that turn, what they ask for would be written as in 1, and so on, for good: the server would
   *    sleep while the client works, and the other way round.
   */
  test("is answered call by call, and what is asked for then goes before the next is answered", async () => {
    const happened: string[] = [];
    const { store, holdBack, heldBack } = await open(() => happened.push("call"));
    let answer = () => {};
    holdBack(
      new Promise((resolve) => {
        answer = resolve;
      }),
    );
    happened.length = 0;
    const cycles = Array.from({ length: 40 }, async (_, nth) => {
      const request = claimRequest(`cycle${nth}`, { key: `cycle${nth}` });
      await store.acquire(request);
      happened.push(nth < 20 ? "first half" : "second half");
      return store.release([request]);
    });
    await sent();
    expect(happened).toEqual(["call", "call"]);
    // Both come at once then.
    await heldBack(2);
    happened.length = 0;
    answer();
    expect((await Promise.all(cycles)).flat()).toEqual(Array.from({ length: 40 }, () => true));
    expect(happened.filter((what, nth) => what !== happened[nth - 1])).toEqual([
      "first half",
      "call",
      "second half",
      "call",
    ]);
  });

  // The script says no more of a grant than that it follows the one before it, and must not where anything came between.
  test("is answered to each its own, with a fence above all before that those on other keys share", async () => {
    const { store } = await open();
    const ask = (name: string, ttlMs: number) => store.acquire(claimRequest(name, { key: name, ttlMs }));
    const renew = async (ref: ClaimRef) => (await store.renew([ref]))[0] as RenewAnswer;
    const { key, id, token, ttlMs } = first;
    const answers = await Promise.all([
      ask("a", 1_000),
      ask("b", 1_000),
      ask("c", 2_000),
      renew({ key, id, token }),
      ask("d", 2_000),
      // Not the simple case, because it does not name the claim in full.
      renew({ key, id }),
      ask("e", 2_000),
      ask("f", 2_000),
    ]);
    const held = answers.filter((answer) => answer.state === "held");
    expect(held.map(({ expiresInMs }) => expiresInMs)).toEqual([
      1_000,
      1_000,
      2_000,
      ttlMs,
      2_000,
      ttlMs,
      2_000,
      2_000,
    ]);
    const fences = held.map(({ fence }) => fence);
    const before = fences[3] as bigint;
    expect(fences[5]).toBe(before);
    const granted = fences.filter((fence) => fence !== before);
    expect(granted).toHaveLength(6);
    for (const fence of granted) expect(fence).toBe(granted[0]);
    expect(granted[0]).toBeGreaterThan(before);
  });

  /**
   * Where all of a call asks the same, the script looks at all keys first and then writes all of them. The interleaving that must not happen:
   * two ask for a key that nobody has, both see it free, and the second overwrites the first, who was told that it holds.
   */
  test("has one holder for a key that is asked for twice, and releases it once", async () => {
    const { store } = await open();
    const ask = (name: string, key: string) =>
      claimRequest(name, { key, owner: "all", wait: false, ttlMs: 60_000 });
    const [one, two, other] = [ask("one", "twice"), ask("two", "twice"), ask("other", "once")];
    const answers = await Promise.all([one, two, other].map((request) => store.acquire(request)));
    expect(answers.map(({ state }) => state)).toEqual(["held", "refused", "held"]);
    const { keys } = await store.look({ key: "twice", maxClaims: 2 });
    expect(keys[0]?.held.map(({ id }) => id)).toEqual([one.id]);

    expect(await store.release([one, other, one])).toEqual([true, true, false]);
    const after = await store.look({ prefix: "", limit: 10, maxClaims: 0 });
    expect(after.keys.map(({ key }) => key)).toEqual([first.key]);
  });

  /** Keys and names travel in one text, with their lengths in bytes in another, which are a format of the server's. */
  test.each([1, 400])("is cut apart by bytes, whatever %d keys and ids are made of", async (count) => {
    const { store } = await open();
    const texts = ["c0", "c5c7", "<d", "7", "-1", "%d", "é", "漢字", "😀".repeat(127), "x".repeat(508)];
    const requests = Array.from({ length: count }, (_, nth) => {
      const text = texts[nth % texts.length]!;
      const name = [...text].slice(0, 20).join("");
      const own = { key: `${nth}${text}`, token: `${nth}${name}`, wait: false, ttlMs: 60_000 };
      return claimRequest(`${name}${nth}`, own);
    });
    const acquired = await Promise.all(requests.map((request) => store.acquire(request)));
    expect(new Set(acquired.map(({ state }) => state))).toEqual(new Set(["held"]));
    for (const { key, id } of requests) {
      const { keys } = await store.look({ key, maxClaims: 1 });
      expect(keys[0]?.held.map((claim) => claim.id)).toEqual([id]);
    }
    const others = requests.map((request) => ({ ...request, token: `${request.token}x` }));
    expect(new Set(await store.release(others))).toEqual(new Set([false]));
    expect(new Set(await store.release(requests))).toEqual(new Set([true]));
  });
});
