/** What all stores must survive, and what becomes of the leases of etcd that claims hang on. */
import { setTimeout as sleep } from "node:timers/promises";
import { type Clock, createLocks } from "holdfast";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdMember, startEtcd } from "../../engines/etcd.ts";
import { cutReplyTo, type Piece } from "../../engines/proxy.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { cutSwaps, proxied, serverFaults } from "../fault-suite.ts";
import { connect, locksAt, participant } from "./participants.ts";

describe.skipIf(!canRunEtcd())("etcd: faults", { timeout: 40_000 }, () => {
  let server: EtcdMember;
  beforeAll(async () => {
    server = await startEtcd();
  }, 60_000);
  afterAll(() => server.stop());

  const urlAt = (port: number) => `http://127.0.0.1:${port}`;
  const swap = { contains: (key: string) => `/r/${key}`, cutAfterBytes: 60 };

  serverFaults({
    connect: ({ port = server.port, clock } = {}) =>
      participant(urlAt(port), { requestTimeoutMs: 1_000 }, clock),
    holder: { store: "etcd", target: () => server.url },
    // The lease behind it is one of 2 s, and etcd looks for leases that are over twice a second.
    endsAfterMs: 2_500,
    stampsFences: false,
    engine: () => server,
    async forget() {
      const client = connect(server.url);
      await client.delete().all();
      client.close();
    },
    swap,
  });

  // It sends a call again by itself after it was broken off, so that a change may come twice.
  describe("with the client as it comes", () => {
    const connectAsItComes = (port = server.port, clock?: Clock) =>
      participant([urlAt(port)], { requestTimeoutMs: 1_000, prefix: "as it comes" }, clock);

    cutSwaps({
      connect: ({ port, clock } = {}) => connectAsItComes(port, clock),
      engine: () => server,
      swap,
    });

    test("a change of which the reply is lost comes twice, is made once, and nobody notices", async () => {
      const proxy = await proxied(server.port);
      const [far, client] = [connectAsItComes(proxy.port), connect(server.url)];
      onTestFinished(async () => {
        await far.store.close();
        await far.end();
        client.close();
      });
      const key = "comes twice";
      const request = claimRequest("id", { key, ttlMs: 20_000 });
      // What is done at first use is done.
      await far.store.acquire({ ...request, key: "warm" });
      const cut = cutReplyTo(`/r/${key}`);
      let arrivals = 0;
      proxy.decide((piece) => {
        if (piece.direction === "request" && piece.bytes.includes(`/r/${key}`)) arrivals++;
        return cut(piece);
      });
      // The store itself does not ask again: a client that repeats nothing would have it fail here.
      const held = await far.store.acquire(request);
      expect([held.state, arrivals]).toEqual(["held", 2]);
      const { kvs } = await client.get(`as it comes/r/${key}`).exec();
      expect(kvs).toMatchObject([{ version: "1" }]);
      expect(await far.store.release([request])).toEqual([true]);
    });
  });

  test("a claim that nobody renews is ended by its own process, which lives on, and whoever waits is told", async () => {
    const [living, waiter] = [participant(server.url), locksAt(server.url)];
    const key = "left behind";
    const request = claimRequest("left", { key, ttlMs: 2_000 });
    const held = await living.store.acquire(request);
    const lease = await waiter.mutex(key, { ttlMs: 60_000 }).acquire({ waitMs: 15_000 });
    expect(held.state === "held" && lease.fence > held.fence).toBe(true);
    // Its lease lives on, with other claims.
    expect(await living.store.acquire({ ...request, key: "another", id: "other" })).toMatchObject({
      state: "held",
    });
    expect(await living.store.renew([request])).toEqual([{ state: "gone" }]);
    await living.store.close();
    await living.end();
  });

  test("a change that was given up and arrives late is not made, and leaves nobody holding", async () => {
    const proxy = await proxied(server.port);
    const near = locksAt(server.url);
    const { store, end } = participant(urlAt(proxy.port), { requestTimeoutMs: 500 });
    const far = createLocks(store, { onWarning: () => {} });
    const key = "late";
    // The lease that the late change would hang on lives on with these.
    const busy = await far.mutex("busy", { ttlMs: 20_000 }).acquire();
    let late: Piece | undefined;
    proxy.decide((piece) => {
      if (piece.direction === "request" && late === undefined && piece.bytes.includes(`/r/${key}`))
        late = piece;
      return piece.connection === late?.connection ? "hold" : "pass";
    });
    await expect(store.acquire(claimRequest("late", { key, ttlMs: 20_000 }))).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    expect(late).toBeDefined();
    // Something else that hangs on the same lease, through another connection.
    await until("another connection serves", () => far.mutex("more", { ttlMs: 20_000 }).run(() => true));
    const before = (await near.inspect("more")).fence;
    // It alone: the client has said since that it is not interested any more.
    let arrived = false;
    proxy.decide((piece) => {
      if (piece.connection !== late?.connection) return "pass";
      arrived ||= piece === late;
      return piece === late ? "pass" : "hold";
    });
    await until("it has arrived", async () => arrived);
    await sleep(300);
    expect(await near.inspect(key)).toMatchObject({ heldCount: 0, fence: 0n });
    expect((await near.mutex(key).acquire()).fence).toBeGreaterThan(before);
    expect(busy.held).toBe(true);
    await far.close();
    await end();
  });
});
