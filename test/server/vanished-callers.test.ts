/** A caller that is gone leaves nothing behind: no claim that is renewed, no stream that is counted, whatever moment it chose. */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import type { Socket } from "node:net";
import { memoryStore, type Store } from "holdfast";
import type { LockServer } from "holdfast/server";
import { describe, expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { storeOver } from "../stores/store-over.ts";
import { dial, http1, jsonCall, jsonStreamCall, say } from "./raw-http.ts";
import { serve } from "./scene.ts";

async function streamsOf({ port }: LockServer): Promise<string | undefined> {
  const page = await say(port, http1("GET", "/metrics", { host: "localhost" }));
  return /^holdfast_streams (\d+)/m.exec(page)?.[1];
}

/** Whether somebody else gets the key at once. */
async function isFree(store: Store, key: string): Promise<boolean> {
  const claim = claimRequest("next", { key, wait: false });
  const { state } = await store.acquire(claim);
  await store.release([claim]);
  return state === "held";
}

/** The server's ends of the connections that requests come on. */
function serverSockets(): Set<Socket> {
  const sockets = new Set<Socket>();
  const note = (message: unknown) => sockets.add((message as { socket: Socket }).socket);
  subscribe("http.server.request.start", note);
  onTestFinished(() => void unsubscribe("http.server.request.start", note));
  return sockets;
}

async function destroyAfter(microtasks: number, sockets: Set<Socket>): Promise<void> {
  for (let left = microtasks; left > 0; left--) await undefined;
  for (const socket of sockets) socket.destroy();
  sockets.clear();
}

const terms = { key: "k", ttlMs: 1_000 };

describe("over HTTP/1.1", () => {
  test.each([
    ["Acquire", { ...terms, releaseOnDisconnect: true }],
    [
      "AcquireMany",
      { keys: [{ key: "k" }, { key: "l" }], terms: { ttlMs: 1_000, releaseOnDisconnect: true } },
    ],
  ])(
    "the lease of a stream of %s whose socket dies in the turn of the grant is released",
    async (method, request) => {
      // The store grants; so many microtasks later, and before or after the answer is written, the server's own socket is destroyed. Its
      // `close` comes only after that turn: what is written in between is thrown away, and no `drain` follows.
      const backend = memoryStore();
      const sockets = serverSockets();
      let microtasks = 0;
      const store = storeOver(backend, {
        acquire: async (asked) => {
          const answer = await backend.acquire(asked);
          if (asked.key === (method === "Acquire" ? "k" : "l")) void destroyAfter(microtasks, sockets);
          return answer;
        },
      });
      const server = await serve({ store });
      for (; microtasks < 100; microtasks++) {
        const socket = await dial(server.port);
        socket.write(jsonStreamCall(method, request));
        await once(socket, "close");
        await expect.poll(() => isFree(backend, "k"), { interval: 5, timeout: 5_000 }).toBe(true);
      }
      sockets.clear();
      await expect.poll(() => streamsOf(server)).toBe("0");
    },
  );

  test("a lease that is left to its ttl is not renewed any more once its caller is gone", async () => {
    const store = memoryStore();
    const server = await serve({ store });
    const socket = await dial(server.port);
    socket.write(jsonStreamCall("Acquire", terms));
    await once(socket, "data");
    socket.destroy();
    await expect.poll(() => isFree(store, "k"), { timeout: 5_000 }).toBe(true);
    expect(await streamsOf(server)).toBe("0");
  });

  test("streams that wait for their turn to be answered end with their connection", async () => {
    const store = memoryStore();
    const server = await serve({ store });
    const socket = await dial(server.port);
    const calls = Array.from({ length: 10 }, (_, n) =>
      jsonStreamCall("Acquire", { ...terms, key: `k-${n}`, releaseOnDisconnect: true }),
    );
    socket.write(Buffer.concat(calls));
    await expect.poll(() => isFree(store, "k-9")).toBe(false);
    socket.destroy();
    for (let n = 0; n < 10; n++) await expect.poll(() => isFree(store, `k-${n}`)).toBe(true);
    await expect.poll(() => streamsOf(server)).toBe("0");
  });

  test("streams broken at any moment leave no stream and no claim", async () => {
    const store = memoryStore();
    const server = await serve({ store });
    for (let round = 0; round < 200; round++) {
      const socket = await dial(server.port);
      const key = `k-${round % 5}`;
      const call = jsonStreamCall("Acquire", {
        ...terms,
        key,
        releaseOnDisconnect: round % 2 === 0,
        maxWaitMs: 500,
      });
      // From before the request is complete to after the grant.
      const cut = Math.min(call.length, call.length - 20 + (round % 40));
      socket.write(call.subarray(0, cut));
      for (let turns = round % 7; turns > 0; turns--) await new Promise(setImmediate);
      if (round % 3 === 0) socket.resetAndDestroy();
      else socket.destroy();
    }
    await expect.poll(() => streamsOf(server), { timeout: 5_000 }).toBe("0");
    for (let n = 0; n < 5; n++)
      await expect.poll(() => isFree(store, `k-${n}`), { timeout: 5_000 }).toBe(true);
  });
});

describe("a caller that gives up while it waits", () => {
  const long = { ttlMs: 60_000 };
  const requests = [
    ["AcquireDetached", { key: "k", ...long }],
    ["Acquire", { key: "k", ...long }],
    ["AcquireMany", { keys: [{ key: "a" }, { key: "k" }], terms: long }],
  ] as const;
  const call = (method: string, request: object) =>
    method === "AcquireDetached" ? jsonCall(method, request) : jsonStreamCall(method, request);
  const named = (request: object) =>
    "terms" in request
      ? { ...request, terms: { ...long, requestId: "r", token: "t" } }
      : { ...request, requestId: "r", token: "t" };
  const countsOf = async (store: Store, key: string) => {
    const { heldCount, waitingCount } = (await store.look({ key, maxClaims: 0 })).keys[0]!;
    return { held: heldCount, waiting: waitingCount };
  };

  test.each(requests)("of %s leaves the queue, if the server made the ids", async (method, request) => {
    const store = memoryStore();
    const server = await serve({ store });
    const holder = claimRequest("holder", { key: "k", ...long });
    await store.acquire(holder);
    for (let attempt = 0; attempt < 3; attempt++) {
      const socket = await dial(server.port);
      socket.write(call(method, request));
      await expect.poll(() => countsOf(store, "k")).toEqual({ held: 1, waiting: 1 });
      socket.destroy();
      await expect.poll(() => countsOf(store, "k")).toEqual({ held: 1, waiting: 0 });
    }
    await store.release([holder]);
    expect(await isFree(store, "k")).toBe(true);
    await expect.poll(() => isFree(store, "a")).toBe(true);
  });

  // (1) The server asks the store. (2) The caller goes, and the server notices. (3) The store grants.
  test.each(requests)("of %s leaves no lease, if the grant comes after that", async (method, request) => {
    const backend = memoryStore();
    let grant = () => {};
    const granting = new Promise<void>((resolve) => {
      grant = resolve;
    });
    let at = "before";
    const store = storeOver(backend, {
      acquire: async (claim) => {
        if (claim.key !== "k") return backend.acquire(claim);
        at = "asked";
        await granting;
        const answer = await backend.acquire(claim);
        at = "granted";
        return answer;
      },
    });
    const sockets = serverSockets();
    const server = await serve({ store });
    const socket = await dial(server.port);
    socket.write(call(method, request));
    await expect.poll(() => at).toBe("asked");
    const closed = Promise.all([...sockets].map((each) => once(each, "close")));
    socket.destroy();
    await closed;
    grant();
    await expect.poll(() => at).toBe("granted");
    await expect.poll(() => countsOf(backend, "k")).toEqual({ held: 0, waiting: 0 });
    expect(await countsOf(backend, "a")).toEqual({ held: 0, waiting: 0 });
  });

  test.each(requests)("of %s finds its place again, if it chose the ids", async (method, request) => {
    const store = memoryStore();
    const server = await serve({ store });
    const [holder, other] = [claimRequest("holder", long), claimRequest("other", long)];
    await store.acquire(holder);
    const socket = await dial(server.port);
    socket.write(call(method, named(request)));
    await expect.poll(() => countsOf(store, "k")).toEqual({ held: 1, waiting: 1 });
    socket.destroy();
    await expect.poll(() => streamsOf(server)).toBe("0");
    await store.acquire(other);
    expect(await countsOf(store, "k")).toEqual({ held: 1, waiting: 2 });
    if (method === "AcquireMany") expect(await countsOf(store, "a")).toEqual({ held: 1, waiting: 0 });
    const again = await dial(server.port);
    onTestFinished(() => void again.destroy());
    again.write(call(method, named(request)));
    await store.release([holder]);
    await expect
      .poll(() => store.renew([{ key: "k", id: "r", token: "t" }]))
      .toMatchObject([{ state: "held" }]);
    expect(await countsOf(store, "k")).toEqual({ held: 1, waiting: 1 });
  });
});
