/** The section "Threats" of docs/server.md, as far as no other test of this folder covers it. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import type { Readable } from "node:stream";
import { Code, ConnectError } from "@connectrpc/connect";
import { memoryStore } from "holdfast";
import { hashToken, type LockServer, type ServerOptions, type Verb } from "holdfast/server";
import { describe, expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { dial, http1, jsonCall, say } from "./raw-http.ts";
import { locksOf, serve, sessionOf } from "./scene.ts";

const entry = (name: string, ...verbs: Verb[]) => ({
  name,
  sha256: hashToken(name),
  grants: [{ prefix: "", verbs }],
});
const tokens = [
  entry("reader", "read"),
  entry("one", "acquire"),
  entry("other", "acquire"),
  entry("admin", "admin", "read"),
];

const serveTokens = (options: Partial<ServerOptions> = {}) => serve({ tokens, ...options });

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** Opens a stream, until the test ends. Resolves with its first event, or with the code of its error. */
async function first(open: (signal: AbortSignal) => AsyncIterable<object>): Promise<object | Code> {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const events = open(ending.signal)[Symbol.asyncIterator]();
  try {
    return (await events.next()).value;
  } catch (error) {
    return ConnectError.from(error).code;
  }
}

/** Also of a stream or socket that ends with an error. */
function closed(stream: Readable): Promise<void> {
  return new Promise((resolve) => stream.once("close", resolve));
}

async function droppedAs(server: LockServer, reason: string): Promise<number> {
  const page = await say(server.port, http1("GET", "/metrics", { host: "localhost" }));
  return Number(new RegExp(`dropped_clients_total\\{reason="${reason}"\\} (\\d+)`).exec(page)?.[1] ?? 0);
}

describe("a network peer without a token", () => {
  test("is refused before anything but its headers is read", async () => {
    const server = await serveTokens();
    const headers = { host: "localhost", "content-type": "application/json", "content-length": "1000000" };
    expect(await say(server.port, http1("POST", "/holdfast.v1.Locks/List", headers))).toContain(" 401 ");
  });

  test("reads in the metrics neither keys nor ids", async () => {
    const server = await serveTokens();
    await sessionOf(server, "one").acquire(claimRequest("its-id", { key: "its-key", ttlMs: 60_000 }));
    const page = await say(server.port, http1("GET", "/metrics", { host: "localhost" }));
    expect(page).toContain("holdfast_held_claims 1");
    expect(page).not.toMatch(/its-id|its-key/);
  });
});

test("a request that stays incomplete is answered so in time", async () => {
  const server = await serveTokens({ limits: { silenceMs: 300 } });
  const connection = connectHttp2(server.url);
  onTestFinished(() => connection.destroy());
  const stream = connection.request({
    ":method": "POST",
    ":path": "/holdfast.v1.Locks/List",
    "content-type": "application/json",
    ...bearer("reader"),
  });
  stream.write("{");
  const [headers] = await once(stream, "response");
  expect(headers[":status"]).toBe(504);
});

test("incomplete requests together keep so much, and the oldest is cut off", async () => {
  const server = await serveTokens({ limits: { maxKeptBytes: 1_048_576 } });
  const half = jsonCall("List", "x".repeat(600_000), bearer("reader")).subarray(0, 300_000);
  const oldest = await dial(server.port);
  const over = closed(oldest.resume());
  oldest.write(half);
  const younger = await Promise.all([1, 2, 3].map(() => dial(server.port)));
  for (const socket of younger) socket.resume().write(half);
  await over;
  expect(younger.some((socket) => !socket.destroyed)).toBe(true);
  await expect.poll(() => droppedAs(server, "memory")).toBeGreaterThan(0);
  for (const socket of younger) socket.destroy();
});

describe("one token has at most so many", () => {
  test("watches, and others have theirs", async () => {
    const server = await serveTokens({ limits: { maxWatches: 2 } });
    const watch = (token: string) =>
      first((signal) => locksOf(server, token).watch({ what: { case: "prefix", value: "" } }, { signal }));
    for (let n = 0; n < 2; n++) expect(await watch("reader")).toMatchObject({ caughtUp: true });
    expect(await watch("reader")).toBe(Code.PermissionDenied);
    expect(await watch("admin")).toMatchObject({ caughtUp: true });
  });

  test("calls that wait, and others have theirs", async () => {
    const server = await serveTokens({ limits: { maxWaitingCalls: 2 } });
    const holder = claimRequest("holder", { key: "k", ttlMs: 60_000 });
    await sessionOf(server, "one").acquire(holder);
    const wait = (token: string) =>
      first((signal) => locksOf(server, token).acquire({ key: "k" }, { signal }));
    for (let n = 0; n < 2; n++) expect(await wait("one")).toMatchObject({ event: { case: "waiting" } });
    expect(await wait("one")).toBe(Code.PermissionDenied);
    expect(await wait("other")).toMatchObject({ event: { case: "waiting" } });
  });

  test("calls and sessions, and others have theirs", async () => {
    const server = await serveTokens({ limits: { maxCalls: 2 } });
    await sessionOf(server, "one")
      .look({ key: "k", maxClaims: 0 })
      .catch(() => {});
    const acquire = (token: string) =>
      first((signal) => locksOf(server, token).acquire({ key: token }, { signal }));
    expect(await acquire("one")).toMatchObject({ event: { case: "acquired" } });
    expect(await acquire("one")).toBe(Code.PermissionDenied);
    expect(await acquire("other")).toMatchObject({ event: { case: "acquired" } });
  });
});

test("a token that may acquire can go ahead of others in the queue, and fill it", async () => {
  const server = await serveTokens({ limits: { maxWaiters: 2 } });
  const [one, other] = [sessionOf(server, "one"), sessionOf(server, "other")];
  const claim = (id: string, priority = 0) => claimRequest(id, { key: "k", ttlMs: 60_000, priority });
  await one.acquire(claim("holder"));
  await one.acquire(claim("waiter"));
  await other.acquire(claim("important", 9));
  expect(await one.acquire(claim("late"))).toEqual({ state: "refused", reason: "queue-full" });
  await one.release([claim("holder")]);
  expect(await other.renew([claim("important", 9)])).toMatchObject([{ state: "held" }]);
  expect(await one.renew([claim("waiter")])).toMatchObject([{ state: "waiting" }]);
});

test("unread answers together keep so much, and the oldest call is cut off", async () => {
  const store = memoryStore();
  const info = "x".repeat(1_000);
  await Promise.all(
    Array.from({ length: 700 }, (_, n) =>
      store.acquire(claimRequest(`${n}`, { key: "k", info, ttlMs: 60_000 })),
    ),
  );
  const server = await serveTokens({ store, limits: { maxKeptBytes: 1_048_576 } });
  const unread = () => {
    const connection = connectHttp2(server.url, { settings: { initialWindowSize: 0 } });
    onTestFinished(() => connection.destroy());
    const stream = connection.request({
      ":method": "POST",
      ":path": "/holdfast.v1.Locks/Status",
      "content-type": "application/json",
      ...bearer("reader"),
    });
    stream.on("error", () => {});
    stream.end('{"key": "k", "maxClaims": 700}');
    return stream;
  };
  const oldest = unread();
  await once(oldest, "response");
  const younger = unread();
  await closed(oldest);
  expect(younger.destroyed).toBe(false);
  await expect.poll(() => droppedAs(server, "memory")).toBe(1);
});

test("a caller that leaves its answer unread is cut off in time", async () => {
  const store = memoryStore();
  const server = await serveTokens({ store, limits: { slowReaderMs: 200 } });
  await store.acquire(claimRequest("holder", { key: "k", ttlMs: 60_000 }));
  const connection = connectHttp2(server.url, { settings: { initialWindowSize: 0 } });
  onTestFinished(() => connection.destroy());
  const stream = connection.request({
    ":method": "POST",
    ":path": "/holdfast.v1.Locks/Status",
    "content-type": "application/json",
    ...bearer("reader"),
  });
  stream.on("error", () => {});
  stream.end('{"key": "k"}');
  await closed(stream);
  await expect.poll(() => droppedAs(server, "slow-reader")).toBe(1);
});
