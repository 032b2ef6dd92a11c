import {
  type AcquireOptions,
  createLocks,
  HoldfastError,
  type LockOptions,
  type LocksOptions,
  memoryStore,
  type PermitOptions,
} from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene } from "./scene.ts";

/** The error with which a call fails, whether it throws or rejects. */
async function failureOf(call: () => unknown): Promise<HoldfastError> {
  try {
    await call();
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    return error as HoldfastError;
  }
  throw new Error("It was accepted.");
}

/** A value of a type that the compiler would not let through, as callers without one can send it. */
function untyped<T>(value: unknown): T {
  return value as T;
}

describe("a client", () => {
  test.each([
    ["null", null, "createLocks(redisStore(client))"],
    ["a client of a database", { call() {}, status: "ready" }, "it has no acquire"],
    ["a promise of a store", Promise.resolve(memoryStore()), "it has no acquire"],
    ["a URL", "redis://u:s3cret@localhost", "createLocks(await openStore(url))"],
  ])("is made over a store, and not over %s", async (_, store, words) => {
    const refused = await failureOf(() => createLocks(untyped(store)));
    expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringContaining(words) });
    expect(refused.message).toMatch(/^store must be a Store/);
    expect(refused.message).not.toContain("s3cret");
  });
});

/** What is asked for, and what the message must say: the field, the range and the value. */
type Refusal<T> = readonly [asked: T, words: readonly string[]];

const badLocks: readonly Refusal<LockOptions>[] = [
  ...[0, -1, 9, 1.5, Number.NaN, 86_400_001, Number.POSITIVE_INFINITY].map(
    (ttlMs): Refusal<LockOptions> => [{ ttlMs }, ["ttlMs", "10 to 86400000", `not ${ttlMs}.`]],
  ),
  [{ ttlMs: untyped("30s") }, ["ttlMs", '"30s"']],
  [{ renew: untyped("no") }, ["renew", "true or false", '"no"']],
  [{ reacquire: untyped(1) }, ["reacquire", "true or false", "1"]],
  [{ ttlMs: untyped(null) }, ["ttlMs", "null"]],
  [{ renew: untyped(null) }, ["renew", "null"]],
  [{ durability: untyped(null) }, ["durability", "null"]],
  [{ maxHoldMs: -1 }, ["maxHoldMs", "0 or more", "-1"]],
  [{ maxHoldMs: Number.NaN }, ["maxHoldMs", "NaN"]],
  [{ onUnavailable: untyped("ignore") }, ["onUnavailable", '"throw", "skip"', '"ignore"']],
  [{ durability: untyped("solid") }, ["durability", '"ephemeral", "local", "quorum"', '"solid"']],
];

const badCalls: readonly Refusal<AcquireOptions & PermitOptions>[] = [
  [{ waitMs: -1 }, ["waitMs", "0 or more", "-1"]],
  [{ waitMs: Number.NaN }, ["waitMs", "NaN"]],
  [{ waitMs: untyped("5") }, ["waitMs", '"5"']],
  [{ priority: -1 }, ["priority", "0 to 65535", "-1"]],
  [{ priority: 65_536 }, ["priority", "0 to 65535", "65536"]],
  [{ priority: 0.5 }, ["priority", "0.5"]],
  [{ permits: 0 }, ["permits", "1 to 4", "0"]],
  [{ permits: 5 }, ["permits", "1 to 4", "5"]],
  [{ permits: 1.5 }, ["permits", "1.5"]],
  [{ id: "" }, ["id", "1 to 128 bytes"]],
  [{ id: "x".repeat(129) }, ["id", "129"]],
  [{ id: "a\nb" }, ["id", "control characters"]],
  [{ info: "x".repeat(1_025) }, ["info", "1024", "1025"]],
  [{ application: "x".repeat(257) }, ["application", "256", "257"]],
  [{ signal: untyped({ aborted: false }) }, ["signal", "AbortSignal"]],
  [{ signal: untyped(new AbortController()) }, ["signal", "controller.signal"]],
  [{ signal: untyped(null) }, ["signal"]],
  [{ token: "" }, ["token", "1 to 128 bytes"]],
  [{ token: "x".repeat(129) }, ["token", "129"]],
  [{ onWaiting: untyped("tell me") }, ["onWaiting", "a function", "tell me"]],
  [{ onWaiting: untyped(null) }, ["onWaiting", "null"]],
  [{ detachOnAbort: untyped("no") }, ["detachOnAbort", "true or false", '"no"']],
  [{ detachOnAbort: untyped(null) }, ["detachOnAbort", "null"]],
];

const badClients: readonly Refusal<LocksOptions>[] = [
  [{ requestTimeoutMs: 0 }, ["requestTimeoutMs", "10 to 86400000", "0"]],
  [{ requestTimeoutMs: Number.NaN }, ["requestTimeoutMs", "NaN"]],
  [{ clockDrift: -0.001 }, ["clockDrift", "0 to 0.1", "-0.001"]],
  [{ clockDrift: 0.11 }, ["clockDrift", "0.11"]],
  [{ clockDrift: Number.NaN }, ["clockDrift", "NaN"]],
  [{ clockDrift: untyped("0.05") }, ["clockDrift", "0.05"]],
  [{ closeStore: untyped("no") }, ["closeStore", '"no"']],
  [{ application: "a\tb" }, ["application", "control characters"]],
];

const badKeys: readonly Refusal<string>[] = [
  ["", ["key", "1 to 512 bytes", "empty"]],
  ["x".repeat(513), ["key", "513"]],
  ["é".repeat(257), ["key", "514"]],
  ["a\0b", ["key", "control characters"]],
  ["a\ud800", ["key", "well-formed"]],
  [untyped(undefined), ["key", "undefined"]],
];

function expectRefused(error: HoldfastError, words: readonly string[]): void {
  expect(error.code).toBe("INVALID_ARGUMENT");
  for (const word of words) expect(error.message).toContain(word);
}

describe("options: what is out of range is refused by name, and the store hears nothing of it", () => {
  test.each(badLocks)("of a lock: %o", async (options, words) => {
    const scene = new Scene();
    const makers = [
      () => scene.locks.mutex("k", options),
      () => scene.locks.rwLock("k", options),
      () => scene.locks.semaphore("k", 4, options),
    ];
    for (const make of makers) expectRefused(await failureOf(make), words);
    expect(scene.calls).toEqual([]);
  });

  test.each(badCalls)("of a call: %o", async (options, words) => {
    const scene = new Scene();
    const lock = scene.locks.semaphore("k", 4);
    const { waitMs, ...tryOptions } = options;
    const calls = [() => lock.acquire(options), () => lock.run(() => "ran", options)];
    if (waitMs === undefined) {
      calls.push(
        () => lock.tryAcquire(tryOptions) as Promise<never>,
        () => lock.tryRun(() => "ran", tryOptions) as Promise<never>,
      );
    }
    for (const call of calls) expectRefused(await failureOf(call), words);
    if (options.permits === undefined) {
      expectRefused(await failureOf(() => scene.locks.all([lock]).acquire(options)), words);
    }
    expect(scene.calls).toEqual([]);
    expect(scene.locks.stats()).toMatchObject({ held: 0, waiting: 0, granted: 0 });
  });

  test("permits of a reader, of which there is no limit", async () => {
    const scene = new Scene();
    const { read } = scene.locks.rwLock("k");
    const options = untyped<AcquireOptions>({ permits: 1_000_000_001 });
    expectRefused(await failureOf(() => read.acquire(options)), ["permits", "1 to 1000000000"]);
    expect(scene.calls).toEqual([]);
  });

  test.each(badClients)("of a client: %o", async (options, words) => {
    expectRefused(await failureOf(() => createLocks(memoryStore(), options)), words);
  });

  test.each(badKeys)("a key: %j", async (key, words) => {
    const { locks, calls } = new Scene();
    const makers = [
      () => locks.mutex(key),
      () => locks.rwLock(key),
      () => locks.semaphore(key, 2),
      () => locks.inspect(key),
      () => locks.forceRelease(key, "id"),
    ];
    for (const make of makers) expectRefused(await failureOf(make), words);
    expect(calls).toEqual([]);
  });

  test.each([0, -1, 1.5, Number.NaN, 1_000_000_001])("a semaphore of %d", async (limit) => {
    const { locks } = new Scene();
    expectRefused(await failureOf(() => locks.semaphore("k", limit)), ["limit", "1 to 1000000000"]);
  });

  test("an extension, a listing, a look and a forced release", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    const calls: [() => unknown, string[]][] = [
      [() => lease.extend(9), ["ttlMs", "10 to 86400000", "9"]],
      [() => lease.extend(Number.NaN), ["ttlMs", "NaN"]],
      [() => lease.release({ mustHold: untyped("yes") }), ["mustHold", "true or false", '"yes"']],
      [() => scene.locks.list({ pageSize: 0 }).next(), ["pageSize", "1 to 1000", "0"]],
      [() => scene.locks.list({ maxClaims: -1 }).next(), ["maxClaims", "0 to 10000", "-1"]],
      [() => scene.locks.list({ prefix: "\n" }).next(), ["prefix", "control characters"]],
      [() => scene.locks.inspect("k", { maxClaims: 10_001 }), ["maxClaims", "10001"]],
      [() => scene.locks.forceRelease("k", ""), ["id", "1 to 128 bytes"]],
    ];
    for (const [call, words] of calls) expectRefused(await failureOf(call), words);
    expect(scene.calls.map(({ verb }) => verb)).toEqual(["acquire"]);
    expect(lease.held).toBe(true);
  });
});

describe("options: what the store cannot do", () => {
  test("more durability than it has is refused, and as much is not", async () => {
    const { locks } = new Scene();
    locks.mutex("k", { durability: "ephemeral" });
    for (const durability of ["local", "quorum"] as const) {
      const error = await failureOf(() => locks.mutex("k", { durability }));
      expect(error).toMatchObject({ code: "DURABILITY_UNAVAILABLE", key: "k" });
      expect(error.message).toContain(`"${durability}"`);
      expect(error.message).toContain('"ephemeral"');
    }
  });

  test("a semaphore is refused where limits are not kept, and everything else is not", async () => {
    const store = Object.assign(memoryStore(), { counts: false });
    const locks = createLocks(store);
    expect(await failureOf(() => locks.semaphore("k", 2))).toMatchObject({ code: "UNSUPPORTED", key: "k" });
    await locks.semaphore("k", 1).run(() => {});
    await locks.rwLock("k").read.run(() => {});
    await locks.close();
  });
});

describe("options: their effect", () => {
  test("who asks and why is kept with the claim", async () => {
    const scene = new Scene({ application: "billing" });
    scene.keep(await scene.locks.mutex("a").acquire({ info: "nightly", priority: 7 }));
    scene.keep(await scene.locks.mutex("b").acquire({ application: "other" }));
    expect(scene.sent("acquire").map(({ args }) => args[0])).toMatchObject([
      { application: "billing", info: "nightly", priority: 7, owner: scene.locks.owner },
      { application: "other", info: "", priority: 0 },
    ]);
  });

  test("a client and its locks cost the store nothing until they are used", async () => {
    const scene = new Scene();
    const { locks } = scene;
    const { read, write } = locks.rwLock("b");
    locks.all([locks.mutex("a"), read]);
    locks.all([write, locks.semaphore("c", 3)]);
    locks.election("e");
    locks.once("o", { windowMs: 1_000 });
    await scene.clock.advance(60_000);
    expect(scene.calls).toEqual([]);
    await locks.mutex("a").tryAcquire();
    expect(scene.calls).not.toEqual([]);
  });

  test("the defaults are as documented", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k").acquire());
    expect(scene.sent("acquire")[0]?.args[0]).toMatchObject({
      ttlMs: 30_000,
      weight: 1,
      limit: 1,
      wait: true,
    });
    scene.cutOff();
    const trying = scene.begin(scene.locks.mutex("other").tryAcquire());
    await scene.clock.advance(4_999);
    expect(trying.state).toBe("pending");
    await scene.clock.advance(1);
    expect(trying.state).toBe("rejected");
  });
});

describe("an option that there is none of", () => {
  const pending = () => createLocks();
  test.each<[string, (locks: ReturnType<typeof pending>) => unknown, string]>([
    [
      "a client",
      () => createLocks(memoryStore(), untyped({ timeout: 1 })),
      "timeout is not an option of createLocks.",
    ],
    [
      "a mutex",
      (locks) => locks.mutex("k", untyped({ ttl: 5_000 })),
      "ttl is not an option of a lock. Remove it, or write one of ttlMs,",
    ],
    ["a reader-writer lock", (locks) => locks.rwLock("k", untyped({ ttl: 5_000 })), "ttl is not"],
    ["a semaphore", (locks) => locks.semaphore("k", 2, untyped({ permits: 5_000 })), "permits is not"],
    [
      "acquire",
      (locks) => locks.mutex("k").acquire(untyped({ timeout: 50 })),
      "timeout is not an option of acquire and run. Remove it, or write one of waitMs,",
    ],
    [
      "run",
      (locks) => locks.mutex("k").run(() => {}, untyped({ wait: 50 })),
      "wait is not an option of acquire and run.",
    ],
    [
      "tryAcquire",
      (locks) => locks.mutex("k").tryAcquire(untyped({ waitMs: 50 })),
      "waitMs is not an option of tryAcquire and tryRun.",
    ],
    [
      "tryRun",
      (locks) => locks.mutex("k").tryRun(() => {}, untyped({ onWaiting() {} })),
      "onWaiting is not an option of tryAcquire",
    ],
    [
      "a group",
      (locks) => locks.all([locks.mutex("k")]).acquire(untyped({ timeout: 50 })),
      "timeout is not an option of acquire",
    ],
    [
      "a group's try",
      (locks) => locks.all([locks.mutex("k")]).tryRun(() => {}, untyped({ waitMs: 50 })),
      "waitMs is not an option of tryAcquire",
    ],
    [
      "release",
      async (locks) => (await locks.mutex("k").acquire()).release(untyped({ must: true })),
      "must is not an option of release.",
    ],
    [
      "once",
      (locks) => locks.once("k", untyped({ windowMs: 50, ttlMs: 50 })),
      "ttlMs is not an option of once.",
    ],
    [
      "once's try",
      (locks) => locks.once("k", { windowMs: 50 }).tryRun(() => {}, untyped({ waitMs: 50 })),
      "waitMs is not",
    ],
    [
      "a schedule",
      (locks) => locks.schedule("k", "* * * * *", () => {}, untyped({ tz: "UTC" })),
      "tz is not an option of schedule.",
    ],
    [
      "the end of a schedule",
      (locks) => locks.schedule("k", "* * * * *", () => {}).stop(untyped({ force: true })),
      "force is not an option of stop.",
    ],
    [
      "an election",
      (locks) => locks.election("k", untyped({ ttl: 50 })),
      "ttl is not an option of election.",
    ],
    [
      "a campaign",
      (locks) => locks.election("k").lead(() => {}, untyped({ waitMs: 1 })),
      "waitMs is not an option of lead.",
    ],
    [
      "an observer",
      (locks) => locks.election("k").observe(untyped({ every: 1 })),
      "every is not an option of observe.",
    ],
    ["list", (locks) => locks.list(untyped({ limit: 1 })).next(), "limit is not an option of list."],
    ["inspect", (locks) => locks.inspect("k", untyped({ max: 1 })), "max is not an option of inspect."],
    ["close", (locks) => locks.close(untyped({ grace: 1 })), "grace is not an option of close."],
  ])("is refused and named, with those that there are: %s", async (_, call, words) => {
    const locks = pending();
    const refused = await failureOf(() => call(locks));
    expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringContaining(words) });
    await locks.close();
    expect(locks.stats().asked).toBe(_ === "release" ? 1 : 0);
  });

  test.each([
    ["a number", 5_000, "not 5000."],
    ["a text", "5s", 'not "5s".'],
    ["a list", [5_000], "not a list."],
    ["null", null, "not null."],
  ])("options that are %s are refused", async (_, options, words) => {
    const locks = pending();
    for (const call of [
      () => locks.mutex("k", untyped(options)),
      () => locks.mutex("k").acquire(untyped(options)),
      () => locks.mutex("k").tryAcquire(untyped(options)),
    ]) {
      const refused = await failureOf(call);
      expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringContaining(words) });
    }
    await locks.close();
  });

  test("one that is undefined is absent", async () => {
    const locks = pending();
    const lease = await locks
      .mutex("k", untyped({ ttlMs: undefined }))
      .acquire(untyped({ waitMs: undefined }));
    expect(lease.held).toBe(true);
    await lease.release();
    await locks.close();
  });
});
