import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { createLocks, memoryStore } from "holdfast";
import { remoteStore } from "holdfast/remote";
import type { LockServer } from "holdfast/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { claims, locks as wire } from "../../src/protocol/index.ts";
import { startLockServer } from "./lock-server.ts";

const store = memoryStore();
let server: LockServer;
let keys = 0;
const newKey = () => `key-${++keys}`;

beforeAll(async () => {
  server = await startLockServer({ store });
});

afterAll(() => server.stop({ graceMs: 0 }));

const transports = {
  gRPC: () => createGrpcTransport({ baseUrl: server.url }),
  "gRPC-Web over HTTP/1.1": () => createGrpcWebTransport({ baseUrl: server.url, httpVersion: "1.1" }),
  "gRPC-Web over HTTP/2": () => createGrpcWebTransport({ baseUrl: server.url, httpVersion: "2" }),
  "Connect over HTTP/1.1": () => createConnectTransport({ baseUrl: server.url, httpVersion: "1.1" }),
  "Connect with JSON over HTTP/2": () =>
    createConnectTransport({ baseUrl: server.url, httpVersion: "2", useBinaryFormat: false }),
};

const client = () => createClient(wire.Locks, transports.gRPC());

function refOf(lease: wire.Lease | undefined) {
  const { key, id, token } = lease!;
  return { key, id, token };
}

/** The code of ours that an error carries. */
function codeOf(error: unknown): [Code, claims.ErrorCode | undefined] {
  const connectError = ConnectError.from(error);
  return [connectError.code, connectError.findDetails(claims.FailureSchema)[0]?.code];
}

describe.each(Object.keys(transports) as (keyof typeof transports)[])("%s", (name) => {
  test("a lease is acquired, kept by heartbeats, and given back", async () => {
    const locks = createClient(wire.Locks, transports[name]());
    const key = newKey();
    const cases: (string | undefined)[] = [];
    let lease: wire.Lease | undefined;
    for await (const { event } of locks.acquire({ key, ttlMs: 2_000, info: "a test" })) {
      cases.push(event.case);
      if (event.case === "acquired") lease = event.value.lease;
      if (event.case === "heartbeat") {
        expect(event.value.expiresInMs).toBeGreaterThan(0);
        const { status } = await locks.status({ key });
        expect(status?.held.map(({ id, fence, info }) => [id, fence, info])).toEqual([
          [lease?.id, lease?.fence, "a test"],
        ]);
        expect(await locks.release({ key, id: lease!.id, token: lease!.token })).toMatchObject({
          released: true,
        });
      }
    }
    expect(cases.slice(0, 2)).toEqual(["acquired", "heartbeat"]);
    expect((await locks.status({ key })).status?.heldCount).toBe(0);
  });
});

describe("acquire", () => {
  test("tells the place in the queue, and the grant", async () => {
    const key = newKey();
    const locks = client();
    const first = await locks.acquireDetached({ key });
    const events = locks.acquire({ key, detached: true })[Symbol.asyncIterator]();
    const waiting = (await events.next()).value as wire.AcquireEvent;
    expect(waiting.event).toMatchObject({ case: "waiting", value: { key, position: 1, queueLength: 1 } });
    await locks.release(refOf(first.lease));
    const acquired = (await events.next()).value as wire.AcquireEvent;
    expect(acquired.event.case).toBe("acquired");
    expect((acquired.event.value as wire.Acquired).lease!.fence).toBeGreaterThan(first.lease!.fence);
    expect(await events.next()).toMatchObject({ done: true });
  });

  test("a try that finds the lock taken is a value and not an error", async () => {
    const key = newKey();
    const locks = client();
    await locks.acquireDetached({ key });
    expect(await locks.acquireDetached({ key, maxWaitMs: 0 })).toMatchObject({ acquired: false });
    const events: wire.AcquireEvent[] = [];
    for await (const event of locks.acquire({ key, maxWaitMs: 0 })) events.push(event);
    expect(events.map(({ event }) => event)).toMatchObject([
      { case: "failed", value: { code: claims.ErrorCode.ACQUIRE_TIMEOUT } },
    ]);
  });

  test("readers share, and a semaphore counts", async () => {
    const key = newKey();
    const locks = client();
    const shared = { key, mode: wire.Mode.SHARED, maxWaitMs: 0 };
    expect((await locks.acquireDetached(shared)).acquired).toBe(true);
    expect((await locks.acquireDetached(shared)).acquired).toBe(true);
    expect((await locks.acquireDetached({ key, maxWaitMs: 0 })).acquired).toBe(false);
    const two = { key: newKey(), mode: wire.Mode.PERMITS, permits: 2, limit: 3, maxWaitMs: 0 };
    expect((await locks.acquireDetached(two)).acquired).toBe(true);
    expect((await locks.acquireDetached(two)).acquired).toBe(false);
    expect((await locks.acquireDetached({ ...two, permits: 1 })).acquired).toBe(true);
  });

  test("a higher priority is served first", async () => {
    const key = newKey();
    const locks = client();
    const { lease } = await locks.acquireDetached({ key });
    const order: string[] = [];
    const wait = async (name: string, priority: number) => {
      const got = await locks.acquireDetached({ key, priority, requestId: name });
      order.push(name);
      await locks.release(refOf(got.lease));
    };
    const low = wait("low", 0);
    await untilWaiting(key, 1);
    const high = wait("high", 5);
    await untilWaiting(key, 2);
    await locks.release(refOf(lease));
    await Promise.all([low, high]);
    expect(order).toEqual(["high", "low"]);
  });

  test("a retry with the same request id and token is the same acquire", async () => {
    const request = { key: newKey(), requestId: "job-42", token: "secret-of-job-42" };
    const locks = client();
    const first = await locks.acquireDetached(request);
    const again = await locks.acquireDetached(request);
    expect(again.lease?.fence).toBe(first.lease?.fence);
    expect(again.lease?.fence).toBeGreaterThan(0n);
  });

  // The server has not noticed that the first connection broke, so the id is still in use.
  test("a call that comes back with the same id goes on where the broken one was", async () => {
    const request = { key: newKey(), requestId: "again", token: "secret", ttlMs: 60_000 };
    const locks = client();
    const broken = new AbortController();
    const stream = locks.acquire(request, { signal: broken.signal })[Symbol.asyncIterator]();
    const first = (await stream.next()).value as wire.AcquireEvent;
    broken.abort();
    await expect(stream.next()).rejects.toThrow();
    const second = locks.acquire(request)[Symbol.asyncIterator]();
    const recovered = (await second.next()).value as wire.AcquireEvent;
    expect(recovered.event.case).toBe("acquired");
    expect((recovered.event.value as wire.Acquired).lease?.fence).toBe(
      (first.event.value as wire.Acquired).lease?.fence,
    );
    await second.return?.();
  });

  test("the former of two calls with one id is told that it lost the claim", async () => {
    const request = { key: newKey(), requestId: "twice", ttlMs: 60_000 };
    const locks = client();
    const former = locks.acquire(request)[Symbol.asyncIterator]();
    await former.next();
    await locks.acquireDetached(request);
    const told = (await former.next()).value as wire.AcquireEvent;
    expect(told.event).toMatchObject({ case: "lost", value: { reason: wire.LossReason.TAKEN_OVER } });
  });

  // Refused by the server, by the library or by the store: none of them is the claim's next caller.
  const refusals: [string, MessageInitShape<typeof wire.AcquireRequestSchema>][] = [
    ["a ttl that is too short", { ttlMs: 5 }],
    ["a ttl that is too long", { ttlMs: 86_400_001 }],
    ["another mode", { mode: wire.Mode.SHARED }],
    ["permits of a mutex", { permits: 2 }],
    ["another priority", { priority: 7 }],
    ["a priority out of range", { priority: 70_000 }],
    ["more durability than there is", { durability: claims.Durability.QUORUM }],
    ["an info that is too long", { info: "x".repeat(1_025) }],
  ];
  test.each(refusals)(
    "a second call with the same request id that is refused for %s ends nothing",
    async (_, wrong) => {
      const key = newKey();
      const request = { key, requestId: "live", token: "secret", ttlMs: 900 };
      const locks = client();
      const over = new AbortController();
      const live = locks.acquire(request, { signal: over.signal })[Symbol.asyncIterator]();
      const { event } = (await live.next()).value as wire.AcquireEvent;
      for (const token of ["secret", "other"]) {
        const second = { ...request, ...wrong, token };
        await expect(locks.acquireDetached(second)).rejects.toThrow();
        await expect(locks.acquire(second)[Symbol.asyncIterator]().next()).rejects.toThrow();
      }
      const { mode = wire.Mode.UNSPECIFIED } = wrong;
      const changed = { ...request, ...wrong, key: "", mode: wire.Mode.UNSPECIFIED, token: "other" };
      const terms = create(wire.AcquireRequestSchema, changed);
      const many = locks.acquireMany({ keys: [{ key, mode }], terms });
      await expect(many[Symbol.asyncIterator]().next()).rejects.toThrow();
      // It goes on, through more than one ttl.
      for (let beat = 0; beat < 4; beat++) {
        expect((await live.next()).value).toMatchObject({ event: { case: "heartbeat" } });
      }
      const { status } = await locks.status({ key });
      expect(status?.held).toMatchObject([{ fence: (event.value as wire.Acquired).lease!.fence }]);
      over.abort();
    },
  );

  test("a try with the same request id and another token does not end the wait of the first", async () => {
    const key = newKey();
    const locks = client();
    const { lease } = await locks.acquireDetached({ key });
    const waits = locks.acquire({ key, requestId: "w", token: "secret" })[Symbol.asyncIterator]();
    expect((await waits.next()).value).toMatchObject({ event: { case: "waiting" } });
    expect(await locks.acquireDetached({ key, requestId: "w", maxWaitMs: 0 })).toMatchObject({
      acquired: false,
    });
    await locks.release(refOf(lease));
    expect((await waits.next()).value).toMatchObject({ event: { case: "acquired" } });
  });

  test("the last of many calls with one id has the claim, and more than a few at once are refused", async () => {
    const key = newKey();
    const locks = client();
    const results = await Promise.allSettled(
      Array.from({ length: 30 }, (_, n) =>
        locks.acquireDetached({ key, requestId: "same", token: `t-${n}` }),
      ),
    );
    const held = results.flatMap((result) => (result.status === "fulfilled" ? [result.value.lease!] : []));
    expect(held.length).toBeGreaterThan(0);
    for (const result of results) {
      if (result.status === "rejected") {
        expect([claims.ErrorCode.QUEUE_FULL, claims.ErrorCode.LEASE_LOST]).toContain(
          codeOf(result.reason)[1],
        );
      }
    }
    const last = held.reduce((one, other) => (other.fence > one.fence ? other : one));
    expect(await locks.extend(refOf(last))).toMatchObject({ fence: last.fence });
  });

  test("a stream that breaks leaves the lease to its ttl, or releases it when that was asked for", async () => {
    const locks = client();
    for (const releaseOnDisconnect of [false, true]) {
      const key = newKey();
      const broken = new AbortController();
      const stream = locks
        .acquire({ key, ttlMs: 2_000, releaseOnDisconnect }, { signal: broken.signal })
        [Symbol.asyncIterator]();
      await stream.next();
      broken.abort();
      await expect(stream.next()).rejects.toThrow();
      const brokenMs = performance.now();
      const { acquired } = await locks.acquireDetached({ key, maxWaitMs: 5_000, ttlMs: 2_000 });
      expect(acquired).toBe(true);
      const waitedMs = performance.now() - brokenMs;
      // It was renewed at most a third of its ttl before.
      if (!releaseOnDisconnect) expect(waitedMs).toBeGreaterThan(300);
    }
  });

  test("a lease that is ended by force is lost at its next heartbeat", async () => {
    const key = newKey();
    const locks = client();
    const stream = locks.acquire({ key, ttlMs: 1_500 })[Symbol.asyncIterator]();
    const { event } = (await stream.next()).value as wire.AcquireEvent;
    const { lease } = event.value as wire.Acquired;
    expect(await locks.forceRelease({ key, id: lease!.id })).toMatchObject({ released: true });
    let last: wire.AcquireEvent | undefined;
    for (let next = await stream.next(); !next.done; next = await stream.next()) last = next.value;
    expect(last?.event).toMatchObject({ case: "lost", value: { key, reason: wire.LossReason.GONE } });
  });

  test("a wait ends when its claim is released", async () => {
    const key = newKey();
    const locks = client();
    await locks.acquireDetached({ key });
    const stream = locks.acquire({ key, requestId: "waits", token: "secret" })[Symbol.asyncIterator]();
    expect(((await stream.next()).value as wire.AcquireEvent).event.case).toBe("waiting");
    expect(await locks.release({ key, id: "waits", token: "secret" })).toMatchObject({ released: true });
    expect(await stream.next()).toMatchObject({ done: true });
    expect((await locks.status({ key })).status?.waitingCount).toBe(0);
  });
});

describe("acquire many", () => {
  test("takes all keys in the order of their bytes, and gives them back together", async () => {
    const [a, b] = [`${newKey()}-a`, `${newKey()}-b`];
    const locks = client();
    const keysAsked = [{ key: b, mode: wire.Mode.SHARED }, { key: a }];
    const stream = locks.acquireMany({ keys: keysAsked, terms: { ttlMs: 1_500, releaseOnDisconnect: true } });
    const events = stream[Symbol.asyncIterator]();
    const { event } = (await events.next()).value as wire.AcquireManyEvent;
    expect((event.value as wire.AcquiredMany).leases.map(({ key }) => key)).toEqual([a, b]);
    expect(((await events.next()).value as wire.AcquireManyEvent).event.case).toBe("heartbeat");
    // One of them is lost: the other one is given back before that is told.
    await locks.forceRelease({ key: a, id: (event.value as wire.AcquiredMany).leases[0]!.id });
    let last: wire.AcquireManyEvent | undefined;
    for (let next = await events.next(); !next.done; next = await events.next()) last = next.value;
    expect(last?.event).toMatchObject({ case: "lost", value: { key: a } });
    expect((await locks.status({ key: b })).status?.heldCount).toBe(0);
  });

  test("undoes partial holds when one key cannot be had", async () => {
    const [a, b] = [`${newKey()}-a`, `${newKey()}-b`];
    const locks = client();
    await locks.acquireDetached({ key: b });
    const events: wire.AcquireManyEvent[] = [];
    const request = { keys: [{ key: a }, { key: b }], terms: { maxWaitMs: 50 } };
    for await (const event of locks.acquireMany(request)) events.push(event);
    expect(events.at(-1)?.event).toMatchObject({
      case: "failed",
      value: { code: claims.ErrorCode.ACQUIRE_TIMEOUT },
    });
    expect((await locks.status({ key: a })).status?.heldCount).toBe(0);
  });

  test("a call that comes back with the same id while it waits goes on with what the former has", async () => {
    const [a, b] = [`${newKey()}-a`, `${newKey()}-b`];
    const locks = client();
    const { lease } = await locks.acquireDetached({ key: b });
    for (const releaseOnDisconnect of [false, true]) {
      const terms = { requestId: "again", token: "secret", releaseOnDisconnect };
      const request = { keys: [{ key: a }, { key: b }], terms };
      const former = locks.acquireMany(request)[Symbol.asyncIterator]();
      expect((await former.next()).value).toMatchObject({ event: { case: "waiting", value: { key: b } } });
      const [before] = (await locks.status({ key: a })).status!.held;
      const over = new AbortController();
      const next = locks.acquireMany(request, { signal: over.signal })[Symbol.asyncIterator]();
      expect((await next.next()).value).toMatchObject({ event: { case: "waiting", value: { key: b } } });
      expect(await former.next()).toMatchObject({ done: true });
      expect((await locks.status({ key: a })).status?.held).toMatchObject([
        { id: "again", fence: before!.fence },
      ]);
      over.abort();
      await expect(next.next()).rejects.toThrow();
    }
    await locks.release(refOf(lease));
  });

  test("a key that is lost while the next one is waited for ends the wait, too", async () => {
    const [a, b] = [`${newKey()}-a`, `${newKey()}-b`];
    const locks = client();
    const { lease } = await locks.acquireDetached({ key: b });
    const request = { keys: [{ key: a }, { key: b }], terms: { requestId: "r", ttlMs: 900 } };
    const events = locks.acquireMany(request)[Symbol.asyncIterator]();
    expect((await events.next()).value).toMatchObject({ event: { case: "waiting", value: { key: b } } });
    await locks.forceRelease({ key: a, id: "r" });
    expect((await events.next()).value).toMatchObject({
      event: { case: "failed", value: { code: claims.ErrorCode.LEASE_LOST } },
    });
    expect((await locks.status({ key: b })).status?.waitingCount).toBe(0);
    await locks.release(refOf(lease));
  });

  test("without terms it has the defaults of each", async () => {
    const key = newKey();
    const locks = client();
    const over = new AbortController();
    const events = locks.acquireMany({ keys: [{ key }] }, { signal: over.signal })[Symbol.asyncIterator]();
    const { event } = (await events.next()).value as wire.AcquireManyEvent;
    expect((event.value as wire.AcquiredMany).leases[0]!.expiresInMs).toBeGreaterThan(29_000);
    over.abort();
    await expect(events.next()).rejects.toThrow();
  });

  test("a key that is asked for twice is a deadlock, which is refused", async () => {
    const request = { keys: [{ key: "twice" }, { key: "twice" }], terms: {} };
    const refused = client().acquireMany(request)[Symbol.asyncIterator]().next();
    await expect(refused.catch(codeOf)).resolves.toEqual([Code.InvalidArgument, claims.ErrorCode.DEADLOCK]);
  });
});

describe("extend, list and watch", () => {
  // The lease is detached before the caller learns of it, so that no other server's extension meets a stale deadline.
  test("extend prolongs a detached lease, and says when it is gone", async () => {
    const key = newKey();
    const locks = client();
    const { lease } = await locks.acquireDetached({ key, ttlMs: 10_000 });
    const extended = await locks.extend({ ...refOf(lease), ttlMs: 60_000 });
    expect(extended.fence).toBe(lease?.fence);
    expect(extended.expiresInMs).toBeGreaterThan(50_000);
    await locks.release(refOf(lease));
    await expect(locks.extend(refOf(lease)).catch(codeOf)).resolves.toEqual([
      Code.FailedPrecondition,
      claims.ErrorCode.NOT_HELD,
    ]);
  });

  test("list goes through the keys of a prefix, page by page", async () => {
    const prefix = `${newKey()}/`;
    const locks = client();
    for (let n = 0; n < 5; n++) await locks.acquireDetached({ key: `${prefix}${n}` });
    const found: string[] = [];
    let cursor = "";
    do {
      const page = await locks.list({ prefix, pageSize: 2, cursor });
      found.push(...page.keys.map(({ key }) => key));
      cursor = page.cursor;
    } while (cursor !== "");
    expect(found.sort()).toEqual([0, 1, 2, 3, 4].map((n) => `${prefix}${n}`));
  });

  test("watch tells what there is and what changes, to any number of watchers", async () => {
    const prefix = `${newKey()}/`;
    const locks = client();
    const key = `${prefix}one`;
    const { lease } = await locks.acquireDetached({ key });
    const over = new AbortController();
    const watchers = [0, 1].map(() => {
      const what = { case: "prefix", value: prefix } as const;
      return locks.watch({ what }, { signal: over.signal })[Symbol.asyncIterator]();
    });
    for (const watcher of watchers) {
      expect((await watcher.next()).value).toMatchObject({ status: { key, heldCount: 1 } });
      expect((await watcher.next()).value).toMatchObject({ caughtUp: true });
    }
    await locks.release(refOf(lease));
    for (const watcher of watchers) {
      expect((await watcher.next()).value).toMatchObject({ status: { key, heldCount: 0 } });
    }
    over.abort();
  });
});

describe("errors", () => {
  test.each([
    ["an empty key", { key: "" }, Code.InvalidArgument, claims.ErrorCode.INVALID_ARGUMENT],
    ["a ttl out of range", { key: "k", ttlMs: 5 }, Code.InvalidArgument, claims.ErrorCode.INVALID_ARGUMENT],
    [
      "a wait out of range",
      { key: "k", maxWaitMs: 4e9 },
      Code.InvalidArgument,
      claims.ErrorCode.INVALID_ARGUMENT,
    ],
    [
      "a mode that there is not",
      { key: "k", mode: 9 },
      Code.InvalidArgument,
      claims.ErrorCode.INVALID_ARGUMENT,
    ],
    ["permits of a mutex", { key: "k", permits: 2 }, Code.InvalidArgument, claims.ErrorCode.INVALID_ARGUMENT],
    [
      "permits without a limit",
      { key: "k", mode: 3 },
      Code.InvalidArgument,
      claims.ErrorCode.INVALID_ARGUMENT,
    ],
    [
      "more durability than there is",
      { key: "k", durability: claims.Durability.QUORUM },
      Code.FailedPrecondition,
      claims.ErrorCode.DURABILITY_UNAVAILABLE,
    ],
  ])("%s is refused with our code as a detail", async (_, request, code, ours) => {
    await expect(client().acquireDetached(request).catch(codeOf)).resolves.toEqual([code, ours]);
  });

  test("a release without a token is refused: that is what ForceRelease is for", async () => {
    await expect(client().release({ key: "k", id: "i" }).catch(codeOf)).resolves.toEqual([
      Code.InvalidArgument,
      claims.ErrorCode.INVALID_ARGUMENT,
    ]);
  });
});

test("a session and simple calls are in one queue", async () => {
  const key = newKey();
  const locks = createLocks(remoteStore(server.url));
  const lease = await locks.mutex(key).acquire();
  const waiting = client().acquireDetached({ key });
  await untilWaiting(key, 1);
  await lease.release();
  const { lease: next } = await waiting;
  expect(next!.fence).toBeGreaterThan(lease.fence);
  await locks.close();
});

async function untilWaiting(key: string, count: number): Promise<void> {
  for (;;) {
    const { keys: found } = await store.look({ key, maxClaims: 0 });
    if (found[0]?.waitingCount === count) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}
