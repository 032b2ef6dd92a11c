/** The owner of a claim that a call makes is the caller, by name and address, and the caller hears of its grants. */
import type { ClientSessionOptions } from "node:http2";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { type ClaimRequest, type GrantListener, memoryStore, type Store } from "holdfast";
import { hashToken, type LockServer, type ServerOptions } from "holdfast/server";
import { afterEach, describe, expect, test } from "vitest";
import { locks as wire } from "../../src/protocol/index.ts";
import { GrantSubscriptions } from "../../src/server/grant-subscriptions.ts";
import { hostOf } from "../../src/server/peer.ts";
import { claimRequest } from "../record/claim-request.ts";
import { storeOver } from "../stores/store-over.ts";
import { startLockServer } from "./lock-server.ts";

const toEnd: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
});

const grants = [{ prefix: "", verbs: ["acquire", "read"] as const }];
const tokens = ["billing", "a@b: c"].map((name) => ({
  name,
  sha256: hashToken(encodeURIComponent(name)),
  grants,
}));

async function serve(options: Partial<ServerOptions> = {}): Promise<LockServer> {
  const server = await startLockServer(options);
  toEnd.push(() => server.stop({ graceMs: 0 }));
  return server;
}

const transports = { gRPC: createGrpcTransport, Connect: createConnectTransport };

/** A caller with a token, from an address of this machine. */
function callerOf(
  server: LockServer,
  token = "",
  localAddress = "127.0.0.1",
  kind: keyof typeof transports = "gRPC",
) {
  // Node passes it on to the socket, which the types do not say.
  const nodeOptions: ClientSessionOptions & { localAddress: string } = { localAddress };
  const transport = transports[kind]({
    baseUrl: server.url,
    httpVersion: "2",
    nodeOptions,
    interceptors: [
      (next) => (request) => {
        if (token !== "") request.header.set("authorization", `Bearer ${encodeURIComponent(token)}`);
        return next(request);
      },
    ],
  });
  return createClient(wire.Locks, transport);
}

/** The events of a stream, until the test ends. */
function follow<T extends { event: { case?: string | undefined } }>(
  open: (signal: AbortSignal) => AsyncIterable<T>,
) {
  const ending = new AbortController();
  const events: T["event"][] = [];
  const over = (async () => {
    for await (const { event } of open(ending.signal)) events.push(event);
  })().catch(() => {});
  toEnd.push(async () => {
    ending.abort();
    await over;
  });
  return { cases: () => events.map((event) => event.case), events };
}

async function claimsOf(store: Store, key: string) {
  const [status] = (await store.look({ key, maxClaims: 9 })).keys;
  return [...(status?.held ?? []), ...(status?.waiting ?? [])];
}

const ownersOf = async (store: Store, key: string) => (await claimsOf(store, key)).map(({ owner }) => owner);

describe("the owner of a claim is its caller", () => {
  test.each(Object.keys(transports) as (keyof typeof transports)[])(
    "over %s, whatever it calls",
    async (kind) => {
      const store = memoryStore();
      const server = await serve({ store, tokens });
      const locks = callerOf(server, "billing", "127.0.0.1", kind);
      await locks.acquireDetached({ key: "k", application: "report" });
      const waiting = follow((signal) => locks.acquire({ key: "k", application: "report" }, { signal }));
      const many = follow((signal) =>
        locks.acquireMany({ keys: [{ key: "l" }, { key: "m" }], terms: {} }, { signal }),
      );
      await expect.poll(() => [waiting.cases()[0], many.cases()[0]]).toEqual(["waiting", "acquired"]);
      const owner = expect.stringMatching(/^billing@127\.0\.0\.1:[0-9a-f]{8}$/);
      expect(await claimsOf(store, "k")).toMatchObject([
        { state: "held", owner, application: "report" },
        { state: "waiting", owner, application: "report" },
      ]);
      expect(await ownersOf(store, "l")).toEqual([owner]);
      expect((await locks.status({ key: "m" })).status?.held[0]?.owner).toEqual(owner);
    },
  );

  test("without tokens by its address alone, and with any name as it stands in ids", async () => {
    const store = memoryStore();
    await callerOf(await serve({ store })).acquireDetached({ key: "k" });
    await callerOf(await serve({ store, tokens }), "a@b: c").acquireDetached({ key: "l" });
    expect(await ownersOf(store, "k")).toEqual([expect.stringMatching(/^127\.0\.0\.1:[0-9a-f]{8}$/)]);
    expect(await ownersOf(store, "l")).toEqual([
      expect.stringMatching(/^a%40b%3A%20c@127\.0\.0\.1:[0-9a-f]{8}$/),
    ]);
  });
});

// With a ttl of a minute the next heartbeat, which would tell it as well, is later than the test may last.
// Other systems than Linux have one loopback address.
const places = process.platform === "linux" ? ["the same address", "another address"] : ["the same address"];
test.each(places)("a caller at %s is told at once that it was granted", async (where) => {
  const store = memoryStore();
  const server = await serve({ store, tokens });
  const holder = claimRequest("holder", { key: "k", ttlMs: 60_000 });
  await store.acquire(holder);
  const first = callerOf(server, "billing");
  const second = callerOf(server, "billing", where === "another address" ? "127.0.0.2" : "127.0.0.1");
  const waits = [first, second].map((locks) =>
    follow((signal) => locks.acquire({ key: "k", ttlMs: 60_000, releaseOnDisconnect: true }, { signal })),
  );
  await expect.poll(() => waits.map(({ cases }) => cases()[0])).toEqual(["waiting", "waiting"]);
  expect(new Set(await ownersOf(store, "k")).size).toBe(where === "another address" ? 3 : 2);
  await store.release([holder]);
  await expect.poll(() => waits.filter(({ cases }) => cases().includes("acquired")).length).toBe(1);
  await store.release((await claimsOf(store, "k")).slice(0, 1).map(({ id }) => ({ key: "k", id })));
  await expect.poll(() => waits.filter(({ cases }) => cases().includes("acquired")).length).toBe(2);
});

// (1) A caller waits. (2) Another call goes on with its id. (3) A late request of the first one reaches the store, and takes the claim
// over. That is no other client, so the second call takes it back.
test("a late request of a caller's former call does not end its wait", async () => {
  const backend = memoryStore();
  const asked: ClaimRequest[] = [];
  const acquire = (request: ClaimRequest) => {
    asked.push(request);
    return backend.acquire(request);
  };
  const locks = callerOf(await serve({ store: storeOver(backend, { acquire }) }));
  const holder = claimRequest("holder", { key: "k", ttlMs: 60_000 });
  await backend.acquire(holder);
  const request = { key: "k", requestId: "run-1", ttlMs: 300 };
  follow((signal) => locks.acquire({ ...request, token: "first" }, { signal }));
  await expect.poll(() => asked.length).toBe(1);
  const second = follow((signal) => locks.acquire({ ...request, token: "second" }, { signal }));
  await expect.poll(() => second.cases()).toContain("waiting");
  await backend.acquire(asked[0]!);
  await expect.poll(() => asked.at(2)?.token).toBe("second");
  await backend.release([holder]);
  await expect.poll(() => second.cases()).toContain("acquired");
});

test("the server stays subscribed for a bounded number of callers that are gone, until it stops", () => {
  const subscribed = new Map<string, GrantListener>();
  const subscriptions = new GrantSubscriptions((owner, listener) => {
    subscribed.set(owner, listener);
    return () => subscribed.delete(owner);
  });
  const billing = { prefix: "billing:" };
  const heard: string[] = [];
  const listener: GrantListener = (refs) => heard.push(...refs.map(({ id }) => id));
  const stops = [1, 2].map(() => subscriptions.listen("owner-1", billing, listener));
  for (let host = 2; host < 200; host++) {
    const stop = subscriptions.listen(`owner-${host}`, billing, listener);
    stop();
    stop();
  }
  expect(subscribed.size).toBe(33);
  expect([...subscribed.keys()].slice(-1)).toEqual(["owner-199"]);
  stops[0]?.();
  stops[0]?.();
  subscribed.get("owner-1")?.([
    { key: "k", id: "billing:i" },
    { key: "k", id: "other:i" },
  ]);
  expect(heard).toEqual(["i"]);
  stops[1]?.();
  expect(subscribed.size).toBe(32);
  subscriptions.close();
  expect(subscribed.size).toBe(0);
});

test("an address of IPv6 has brackets in the owner", () => {
  expect(hostOf({ address: "fe80::1", port: 1, certificate: undefined })).toBe("[fe80::1]");
});
