/** Calls and leases when a server stops. */
import { Code, ConnectError } from "@connectrpc/connect";
import { memoryStore } from "holdfast";
import { expect, test } from "vitest";
import { claims, type locks as wire } from "../../src/protocol/index.ts";
import { locksOf, serve } from "./scene.ts";

async function twoServers() {
  const store = memoryStore();
  const servers = [await serve({ store }), await serve({ store })] as const;
  return { store, servers, clients: [locksOf(servers[0]), locksOf(servers[1])] as const };
}

test("a held stream is told to move, and finds its lease on the other server", async () => {
  const { servers, clients } = await twoServers();
  const request = { key: "k", requestId: "job", token: "secret", ttlMs: 60_000 };
  const stream = clients[0].acquire(request)[Symbol.asyncIterator]();
  const { event } = (await stream.next()).value as wire.AcquireEvent;
  const stopped = servers[0].stop();
  const error = await stream.next().then(() => expect.unreachable(), ConnectError.from);
  expect(error.code).toBe(Code.Unavailable);
  expect(error.findDetails(claims.FailureSchema)[0]?.code).toBe(claims.ErrorCode.STORE_UNAVAILABLE);
  const recovered = (await clients[1].acquireDetached(request)).lease;
  expect(recovered?.fence).toBe((event.value as wire.Acquired).lease?.fence);
  await stopped;
});

test("a waiting stream keeps its place in the queue while it moves", async () => {
  const { store, servers, clients } = await twoServers();
  const holder = await clients[1].acquireDetached({ key: "k", ttlMs: 60_000 });
  const request = { key: "k", requestId: "first", token: "secret", ttlMs: 60_000 };
  const stream = clients[0].acquire(request)[Symbol.asyncIterator]();
  await stream.next();
  const behind = clients[1].acquireDetached({ key: "k", ttlMs: 60_000 });
  await expect.poll(async () => (await store.look({ key: "k", maxClaims: 0 })).keys[0]?.waitingCount).toBe(2);
  await Promise.all([servers[0].stop(), expect(stream.next()).rejects.toThrow()]);
  const moved = clients[1].acquireDetached(request);
  await new Promise((resolve) => setTimeout(resolve, 50));
  const { key, id, token } = holder.lease!;
  await clients[1].release({ key, id, token });
  const { lease } = await moved;
  await clients[1].release({ key: "k", id: lease!.id, token: lease!.token });
  expect((await behind).lease!.fence).toBeGreaterThan(lease!.fence);
});

test("a waiting call whose id the server made leaves the queue, since no caller can go on with it", async () => {
  const { store, servers, clients } = await twoServers();
  await clients[1].acquireDetached({ key: "k", ttlMs: 60_000 });
  const waits = clients[0].acquireDetached({ key: "k", ttlMs: 60_000 });
  const waiting = async () => (await store.look({ key: "k", maxClaims: 0 })).keys[0]?.waitingCount;
  await expect.poll(waiting).toBe(1);
  await Promise.all([servers[0].stop(), expect(waits).rejects.toThrow("Ask another server.")]);
  expect(await waiting()).toBe(0);
});

test("nothing new is begun, watches end, and the health says so", async () => {
  const { servers, clients } = await twoServers();
  const watching = clients[0].watch({ what: { case: "key", value: "k" } })[Symbol.asyncIterator]();
  await watching.next();
  const stopped = servers[0].stop();
  await expect(
    (async () => {
      for (let next = await watching.next(); !next.done; next = await watching.next());
    })(),
  ).rejects.toMatchObject({ code: Code.Unavailable });
  await stopped;
  await expect(fetch(`${servers[0].url}/readyz`)).rejects.toThrow();
});

test("stopping twice is stopping once, and a connection that nobody closes does not keep it", async () => {
  const { servers } = await twoServers();
  const { connect } = await import("node:net");
  const socket = connect(servers[0].port, "127.0.0.1").resume();
  socket.write("PRI");
  await new Promise((resolve) => socket.once("connect", resolve));
  await Promise.all([servers[0].stop({ graceMs: 100 }), servers[0].stop({ graceMs: 100 })]);
});
