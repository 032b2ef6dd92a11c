/** Every bound on what a client can ask for or make the server keep. */
import { connect as connectHttp2 } from "node:http2";
import { connect as connectTcp } from "node:net";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import {
  createLocks,
  HoldfastError,
  memoryStore,
  type Store,
  StoreUnavailableError,
  UNLIMITED,
} from "holdfast";
import { remoteStore } from "holdfast/remote";
import type { LockServer, ServerLimits } from "holdfast/server";
import { ManualClock } from "holdfast/testing";
import { afterEach, describe, expect, test } from "vitest";
import { deferred } from "../../src/platform/deferred.ts";
import { RequestWriter, locks as wire } from "../../src/protocol/index.ts";
import { claimRequest } from "../record/claim-request.ts";
import { storeOver } from "../stores/store-over.ts";
import { startLockServer } from "./lock-server.ts";

const toEnd: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
});

async function world(
  limits: ServerLimits,
  backend: Store = memoryStore(),
): Promise<{ server: LockServer; store: Store }> {
  const server = await startLockServer({ limits, store: backend });
  const store = remoteStore(server.url);
  toEnd.push(
    () => server.stop({ graceMs: 0 }),
    () => store.close(),
  );
  return { server, store };
}

const long = { ttlMs: 10_000 };
const claim = (n: number, key = `key-${n}`) => claimRequest(`claim-${n}`, { key, ...long });

describe("claims", () => {
  test("a client has at most so many, and may go on with those it has", async () => {
    const { store } = await world({ maxClaims: 3 });
    for (const n of [1, 2, 3]) expect(await store.acquire(claim(n))).toMatchObject({ state: "held" });
    await expect(store.acquire(claim(4))).rejects.toMatchObject({ code: "UNAUTHORIZED" });
    expect(await store.acquire(claim(3))).toMatchObject({ state: "held" });
    await store.release([claim(1)]);
    expect(await store.acquire(claim(4))).toMatchObject({ state: "held" });
  });

  test("what has expired does not count", async () => {
    const { store } = await world({ maxClaims: 1 });
    await store.acquire(claimRequest("short", { key: "short", ttlMs: 50 }));
    await expect
      .poll(
        () =>
          store.acquire(claim(1)).then(
            ({ state }) => state,
            () => "refused",
          ),
        { timeout: 5_000 },
      )
      .toBe("held");
  });

  test("a key has at most so many waiters, and a full queue still lets through what need not wait", async () => {
    const { store } = await world({ maxWaiters: 1 });
    const [holder, waiter, third] = [claim(1, "k"), claim(2, "k"), claim(3, "k")];
    await store.acquire(holder);
    expect(await store.acquire(waiter)).toMatchObject({ state: "waiting" });
    expect(await store.acquire(third)).toEqual({ state: "refused", reason: "queue-full" });
    // A waiting claim may ask again.
    expect(await store.acquire(waiter)).toMatchObject({ state: "waiting" });
    await store.release([waiter]);
    expect(await store.acquire(third)).toMatchObject({ state: "waiting" });
  });

  test.each([
    ["a ttl", { maxTtlMs: 1_000 }, { ttlMs: 1_001 }],
    ["an info", { maxInfoBytes: 10 }, { info: "ä".repeat(6) }],
    ["a key", { maxKeyBytes: 10 }, { key: "ä".repeat(6) }],
  ])("%s beyond the server's bound is refused", async (_, limits, asked) => {
    const { store } = await world(limits);
    await expect(store.acquire(claimRequest("i", asked))).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(await store.acquire(claimRequest("i"))).toMatchObject({ state: "held" });
  });

  test("a schedule runs with a low bound on leases, for its notes are none", async () => {
    const { server } = await world({ maxTtlMs: 60_000 });
    const clock = new ManualClock(Date.UTC(2030, 0, 1, 0, 0, 30));
    const warnings: string[] = [];
    const locks = createLocks(remoteStore(server.url), {
      clock,
      onWarning: ({ message }) => warnings.push(message),
    });
    toEnd.push(() => locks.close());
    const schedule = locks.schedule("job", "* * * * *", () => {});
    const { store } = locks;
    const life = async () => (await store.look({ key: "job#runs", maxClaims: 9 })).keys[0]!.held;
    await expect.poll(async () => (await life()).length).toBe(1);
    await clock.advance(30_000);
    await expect
      .poll(async () => (await schedule.history()).map(({ outcome }) => outcome))
      .toEqual(["completed"]);
    for (const { expiresInMs } of await life()) expect(expiresInMs).toBeGreaterThan(86_000_000);
    expect(warnings).toEqual([]);
    // Only notes have such lives.
    const asked = { limit: UNLIMITED, ttlMs: 86_400_000 };
    for (const [id, changes] of [
      [":note", { ...asked, key: "job" }],
      ["note", { ...asked, key: "job#runs" }],
      [":note", { ...asked, key: "job#runs", limit: 1 }],
    ] as const) {
      await expect(store.acquire(claimRequest(id, changes))).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
      });
    }
    await schedule.stop();
  });

  test("a renewal cannot ask for a longer ttl either", async () => {
    const { store } = await world({ maxTtlMs: 1_000 });
    await store.acquire(claimRequest("i", { ttlMs: 1_000 }));
    await expect(store.renew([{ key: "k", id: "i", token: "i", ttlMs: 5_000 }])).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  test("a renewal that asks for too long does not cost the others of its call theirs", async () => {
    const { store } = await world({ maxTtlMs: 10_000 });
    const claims = [claim(1), claim(2), claim(3)];
    for (const each of claims) await store.acquire(each);
    await store.release([claim(3)]);
    const [first, second, third] = claims.map(({ key, id, token }) => ({ key, id, token }));
    expect(await store.renew([{ ...first!, ttlMs: 10_001 }, second!, third!])).toEqual([
      { state: "failed", error: expect.objectContaining({ code: "INVALID_ARGUMENT" }) },
      expect.objectContaining({ state: "held" }),
      { state: "gone" },
    ]);
    // Each is told what it asked for itself.
    const tooLong = { state: "failed", error: expect.objectContaining({ code: "INVALID_ARGUMENT" }) };
    const answers = await store.renew([
      { ...first!, ttlMs: 10_001 },
      { ...second!, ttlMs: 10_002 },
    ]);
    expect(answers).toEqual([tooLong, tooLong]);
    expect(answers.map((answer) => answer.state === "failed" && String(answer.error))).toEqual([
      expect.stringContaining("not 10001"),
      expect.stringContaining("not 10002"),
    ]);
  });

  test("an outage of the store is counted, also where a renewal of the call is refused", async () => {
    const renew = () => Promise.reject(new StoreUnavailableError("The server is down."));
    const { server, store } = await world({ maxTtlMs: 10_000 }, storeOver(memoryStore(), { renew }));
    const claims = [claim(1), claim(2)];
    for (const each of claims) await store.acquire(each);
    const [first, second] = claims.map(({ key, id, token }) => ({ key, id, token }));
    await store.renew([{ ...first!, ttlMs: 10_001 }, second!]);
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    expect(metrics).toMatch(/errors_total\{code="STORE_UNAVAILABLE"\} 1/);
  });

  // (1) The database is silent about many leases. (2) Each is asked about by itself, again and again. (3) The session has as many unanswered
  // operations as it may, and no others of the client are read.
  test("leases that the store is silent about do not fill the session that others need", async () => {
    const backend = memoryStore();
    let hangs = false;
    const renew: Store["renew"] = (refs) =>
      hangs && refs.some(({ key }) => key.startsWith("silent")) ? new Promise(() => {}) : backend.renew(refs);
    const { store } = await world({ maxInFlight: 100 }, storeOver(backend, { renew }));
    const locks = createLocks(store, { closeStore: false, onWarning: () => {} });
    const silent = await Promise.all(
      Array.from({ length: 40 }, (_, nth) => locks.mutex(`silent-${nth}`, { ttlMs: 3_000 }).acquire()),
    );
    const other = await locks.mutex("other", { ttlMs: 3_000 }).acquire();
    hangs = true;
    await expect.poll(() => silent.some((lease) => lease.held)).toBe(false);
    expect(other.held).toBe(true);
    expect(await locks.mutex("late").tryAcquire()).toMatchObject({ held: true });
  });

  test.each([
    ["fails for", () => Promise.reject(new HoldfastError("STORE_FAILURE", "The record is damaged."))],
    ["leaves out", async () => []],
  ])("a renewal that asks for too long is told so, also where the store %s another one", async (_, renew) => {
    const { store } = await world({ maxTtlMs: 10_000 }, storeOver(memoryStore(), { renew }));
    const claims = [claim(1), claim(2)];
    for (const each of claims) await store.acquire(each);
    const [first, second] = claims.map(({ key, id, token }) => ({ key, id, token }));
    expect(await store.renew([{ ...first!, ttlMs: 10_001 }, second!])).toMatchObject([
      { state: "failed", error: { code: "INVALID_ARGUMENT" } },
      { state: "failed", error: { code: "STORE_FAILURE" } },
    ]);
  });
});

describe("calls", () => {
  test.each([
    ["a wait", { maxWaitMs: 1_000 }, { key: "k", maxWaitMs: 1_001 }],
    ["a ttl", { maxTtlMs: 1_000 }, { key: "k", ttlMs: 1_001 }],
  ])("%s beyond the server's bound is refused", async (_, limits, request) => {
    const { server } = await world(limits);
    const locks = createClient(wire.Locks, createGrpcTransport({ baseUrl: server.url }));
    const error = await locks.acquireDetached(request).catch(ConnectError.from);
    expect((error as ConnectError).code).toBe(Code.InvalidArgument);
  });

  test("keys beyond the server's bound for one call are refused", async () => {
    const { server } = await world({ maxKeys: 2 });
    const locks = createClient(wire.Locks, createGrpcTransport({ baseUrl: server.url }));
    const take = async (count: number) => {
      const keys = Array.from({ length: count }, (_, n) => ({ key: `of-many-${n}` }));
      const stream = locks.acquireMany({ keys, terms: { detached: true, maxWaitMs: 0 } });
      return (await stream[Symbol.asyncIterator]().next()).value?.event.case;
    };
    expect(await take(2)).toBe("acquired");
    expect(ConnectError.from(await take(3).catch((error) => error)).code).toBe(Code.InvalidArgument);
  });

  test("a message that is too long is refused", async () => {
    const { server } = await world({ maxMessageBytes: 16_384 });
    const response = await fetch(`${server.url}/holdfast.v1.Locks/Status`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ key: "x".repeat(20_000) }),
    });
    expect(response.status).toBe(429);
    expect(await response.json()).toMatchObject({ code: "resource_exhausted" });
  });

  test("a connection has at most so many streams, and the others wait their turn", async () => {
    const { server } = await world({ maxStreams: 2 });
    const connection = connectHttp2(server.url);
    toEnd.push(() => connection.destroy());
    await new Promise((resolve) => connection.once("remoteSettings", resolve));
    expect(connection.remoteSettings.maxConcurrentStreams).toBe(2);
  });

  test("there are at most so many connections", async () => {
    const { server } = await world({ maxConnections: 2 });
    const sockets = [1, 2, 3].map(() => connectTcp(server.port, "127.0.0.1"));
    toEnd.push(...sockets.map((socket) => () => socket.destroy()));
    for (const socket of sockets) socket.on("error", () => {}).resume();
    await expect.poll(() => sockets.filter((socket) => socket.closed).length).toBe(1);
  });
});

describe("clients that are slow or silent", () => {
  test("a connection that says nothing is closed", async () => {
    const { server } = await world({ silenceMs: 200 });
    const socket = connectTcp(server.port, "127.0.0.1").resume();
    await new Promise((resolve) => socket.once("close", resolve));
  });

  test("a connection that does not answer pings is closed, and its claims go with their ttl", async () => {
    const { server, store } = await world({ silenceMs: 400 });
    const socket = connectTcp(server.port, "127.0.0.1");
    socket.write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // An empty SETTINGS frame, and then not a word.
    socket.write(Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]));
    socket.resume();
    await new Promise((resolve) => socket.once("close", resolve));
    // A connection that answers pings stays.
    await store.look({ key: "k", maxClaims: 0 });
  });

  test("a session without a hello is ended", async () => {
    const { server } = await world({ silenceMs: 300 });
    const connection = connectHttp2(server.url);
    toEnd.push(() => connection.destroy());
    const stream = connection.request({
      ":method": "POST",
      ":path": "/holdfast.v1.Session/Open",
      "content-type": "application/grpc+proto",
    });
    const trailers = await new Promise<Record<string, unknown>>((resolve) => {
      stream.once("trailers", resolve).resume();
    });
    expect(trailers["grpc-status"]).toBe("9");
  });
});

test("a session that does not read its answers is not read from, and is cut off", async () => {
  const { server, store } = await world({ maxBufferedBytes: 100_000, slowReaderMs: 300 });
  for (let n = 0; n < 50; n++) {
    const info = "x".repeat(1_000);
    await store.acquire(claimRequest(`id-${n}`, { key: `looked-at-${n}`, info, ttlMs: 60_000 }));
  }
  const connection = connectHttp2(server.url, { settings: { initialWindowSize: 0 } });
  toEnd.push(() => connection.destroy());
  const stream = connection.request({
    ":method": "POST",
    ":path": "/holdfast.v1.Session/Open",
    "content-type": "application/grpc+proto",
  });
  stream.on("error", () => {});
  const writer = new RequestWriter();
  writer.hello(1, "slow");
  for (let number = 1; number <= 100; number++) {
    writer.look(number, { prefix: "looked-at-", limit: 100, maxClaims: 1 });
  }
  stream.write(writer.take());
  await new Promise((resolve) => stream.once("close", resolve));
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  expect(metrics).toContain('holdfast_dropped_clients_total{reason="slow-reader"} 1');
  // Looks are made one after the other, when the one before has been sent: of a hundred, few were.
  const looks = Number(/holdfast_store_seconds_count\{verb="look"\} (\d+)/.exec(metrics)?.[1]);
  expect(looks).toBeLessThan(20);
  expect(await store.acquire(claim(1))).toMatchObject({ state: "held" });
});

describe("sessions", () => {
  /** A session by hand. */
  async function session(server: LockServer) {
    const connection = connectHttp2(server.url);
    toEnd.push(() => connection.destroy());
    const stream = connection.request({
      ":method": "POST",
      ":path": "/holdfast.v1.Session/Open",
      "content-type": "application/grpc+proto",
    });
    const writer = new RequestWriter();
    writer.hello(1, "by hand");
    stream.on("error", () => {}).resume();
    return { stream, writer };
  }

  test("a message has at most so many operations", async () => {
    const { server } = await world({ maxOperations: 1_000 });
    const { stream, writer } = await session(server);
    for (let number = 1; number <= 1_001; number++) {
      writer.release(number, [{ key: "k", id: "i", token: "t" }]);
    }
    const trailers = new Promise<Record<string, unknown>>((resolve) => void stream.once("trailers", resolve));
    stream.write(writer.take());
    expect((await trailers)["grpc-status"]).toBe("3");
  });

  test("with so many operations unanswered, no more are read until some are answered", async () => {
    const memory = memoryStore();
    const open = deferred<void>();
    let asked = 0;
    const slow = storeOver(memory, {
      async acquire(request) {
        asked++;
        await open.promise;
        return memory.acquire(request);
      },
    });
    const server = await startLockServer({ store: slow, limits: { maxInFlight: 100 } });
    toEnd.push(() => server.stop({ graceMs: 0 }));
    const { stream, writer } = await session(server);
    const other = remoteStore(server.url);
    toEnd.push(() => other.close());
    for (let message = 0; message < 100; message++) {
      for (let n = 0; n < 50; n++) {
        const number = message * 50 + n + 1;
        // So long that they do not all arrive in one piece.
        const key = `${number}-${"x".repeat(400)}`;
        writer.acquire(number, claimRequest(`${number}`, { key, ...long }));
      }
      stream.write(writer.take());
      await other.look({ key: "k", maxClaims: 0 });
    }
    for (let turn = 0; turn < 20; turn++) await other.look({ key: "k", maxClaims: 0 });
    expect(asked).toBeGreaterThan(100);
    expect(asked).toBeLessThan(2_500);
    open.resolve();
    await expect.poll(() => asked, { timeout: 15_000 }).toBe(5_000);
  });

  test("a session hears of the grants of at most so many owners", async () => {
    const { store } = await world({ maxOwners: 2 });
    const heard: string[] = [];
    for (const owner of ["a", "b", "c"]) store.onGrant(owner, () => heard.push(owner));
    for (const owner of ["c", "a", "b"]) {
      await store.acquire(claimRequest("holder", { key: owner, ...long }));
      const waiting = await store.acquire(claimRequest("waiter", { key: owner, owner, ...long }));
      expect(waiting.state).toBe("waiting");
      await store.release([claimRequest("holder", { key: owner })]);
    }
    // The one that is not heard of was granted first.
    await expect.poll(() => heard, { timeout: 15_000 }).toEqual(["a", "b"]);
  });
});

test("long lists of heartbeats are cut into messages that a server takes", async () => {
  const { server } = await world({ maxMessageBytes: 16_384, maxOperations: 1_000 });
  const locks = createLocks(remoteStore(server.url));
  toEnd.push(() => locks.close());
  const leases = await Promise.all(
    Array.from({ length: 1_500 }, (_, n) =>
      locks.mutex(`${"long".repeat(50)}-${n}`, { ttlMs: 3_000 }).acquire(),
    ),
  );
  await expect.poll(() => locks.stats().renewals, { timeout: 10_000 }).toBeGreaterThanOrEqual(1_500);
  expect(leases.every((lease) => lease.held)).toBe(true);
  expect(locks.stats().failures).toBe(0);
});

test.each([
  ["maxOperations", 10],
  ["maxMessageBytes", 100],
  ["silenceMs", 0],
  ["maxTtlMs", 1e9],
])("a bound that makes no sense is refused: %s %d", async (name, value) => {
  await expect(startLockServer({ limits: { [name]: value } })).rejects.toMatchObject({
    code: "INVALID_ARGUMENT",
  });
});
