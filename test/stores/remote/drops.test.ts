/**
 * Connections that break at random points. Whatever was on its way then may or may not have been done; asking again with the
 * same claim must make neither two of it nor none, and nothing that was given back may come back.
 */
import { createLocks, type Lease, memoryStore, type Store } from "holdfast";
import { remoteStore } from "holdfast/remote";
import type { LockServer } from "holdfast/server";
import { afterEach, describe, expect, test } from "vitest";
import { cutReplyTo, cutRequest, type NetworkProxy, silence, startProxy } from "../../engines/proxy.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { startLockServer } from "../../server/lock-server.ts";
import { Random } from "../../simulation/random.ts";

const toEnd: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
});

async function world(): Promise<{ backend: Store; server: LockServer; proxy: NetworkProxy; url: string }> {
  const backend = memoryStore();
  const server = await startLockServer({ store: backend });
  const proxy = await startProxy(server.port);
  toEnd.push(
    () => server.stop({ graceMs: 0 }),
    () => proxy.stop(),
  );
  return { backend, server, proxy, url: `http://127.0.0.1:${proxy.port}` };
}

describe("a broken connection", () => {
  test("rejects what was asked, as an outage, and the next question finds a new connection", async () => {
    const { proxy, url } = await world();
    const store = remoteStore(url);
    toEnd.push(() => store.close());
    await store.look({ key: "k", maxClaims: 0 });
    proxy.decide(silence);
    const asked = store.look({ key: "k", maxClaims: 0 });
    proxy.cut();
    await expect(asked).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    proxy.heal();
    await expect
      .poll(() => store.look({ key: "k", maxClaims: 0 }).then(() => "ok", String), { timeout: 5_000 })
      .toBe("ok");
  });

  test("an acquire whose reply was lost is the same claim when it is repeated", async () => {
    const { proxy, url } = await world();
    const locks = createLocks(remoteStore(url));
    toEnd.push(() => locks.close());
    await locks.mutex("other").run(() => {});
    proxy.decide(cutReplyTo("precious"));
    const lease = await locks.mutex("precious").acquire();
    const { held, waitingCount } = await locks.inspect("precious");
    expect(held.map(({ id, fence }) => [id, fence])).toEqual([[lease.id, lease.fence]]);
    expect(waitingCount).toBe(0);
  });

  test("an acquire that was cut in two reaches nobody, and is asked again", async () => {
    const { proxy, url, backend } = await world();
    const locks = createLocks(remoteStore(url));
    toEnd.push(() => locks.close());
    await locks.mutex("other").run(() => {});
    proxy.decide(cutRequest("precious", 30));
    const lease = await locks.mutex("precious").acquire();
    expect((await backend.look({ key: "precious", maxClaims: 9 })).keys[0]?.heldCount).toBe(1);
    expect(await lease.release()).toBe(true);
  });

  test("a lease that is held goes on, and its waiters hear of their turn on the new connection", async () => {
    const { proxy, url } = await world();
    const holder = createLocks(remoteStore(url));
    const waiter = createLocks(remoteStore(url));
    toEnd.push(
      () => holder.close(),
      () => waiter.close(),
    );
    const lease = await holder.mutex("k").acquire();
    const waiting = waiter.mutex("k", { ttlMs: 60_000 }).acquire();
    await expect.poll(async () => (await holder.inspect("k")).waitingCount).toBe(1);
    proxy.cut();
    // Both come back by themselves.
    await expect
      .poll(() => holder.inspect("k").then((status) => status.waitingCount, String), { timeout: 5_000 })
      .toBe(1);
    await expect
      .poll(() => waiter.inspect("k").then((status) => status.waitingCount, String), { timeout: 5_000 })
      .toBe(1);
    expect(lease.held).toBe(true);
    const releasedMs = performance.now();
    expect(await lease.release()).toBe(true);
    const next = await waiting;
    expect(next.fence).toBeGreaterThan(lease.fence);
    // By the push, and not by the heartbeat that is due 20 s later.
    expect(performance.now() - releasedMs).toBeLessThan(10_000);
  });

  test("a grant that is pushed while there is no connection is heard of as soon as there is one", async () => {
    const { server, proxy, url } = await world();
    const holder = createLocks(remoteStore(server.url));
    const waiter = createLocks(remoteStore(url));
    toEnd.push(
      () => holder.close(),
      () => waiter.close(),
    );
    const lease = await holder.mutex("k").acquire();
    // A heartbeat would be due only after 8 hours.
    const waiting = waiter.mutex("k", { ttlMs: 86_400_000 }).acquire();
    await expect.poll(async () => (await holder.inspect("k")).waitingCount).toBe(1);
    proxy.refuse();
    await lease.release();
    await expect.poll(async () => (await holder.inspect("k")).heldCount).toBe(1);
    proxy.heal();
    expect((await waiting).fence).toBeGreaterThan(lease.fence);
  });

  test("a server that has gone without a word is noticed by its silence", async () => {
    const { proxy, url } = await world();
    const store = remoteStore(url, { silenceMs: 500 });
    toEnd.push(() => store.close());
    await store.look({ key: "k", maxClaims: 0 });
    proxy.decide(silence);
    await expect(store.look({ key: "k", maxClaims: 0 })).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    proxy.heal();
    await expect
      .poll(() => store.look({ key: "k", maxClaims: 0 }).then(() => "ok", String), { timeout: 5_000 })
      .toBe("ok");
  });
});

describe("connections that break all the time", () => {
  test.each(process.env["FAULTS"] === "all" ? [1, 2, 3] : [1])(
    "never lose, double or resurrect a claim (seed %d)",
    async (seed) => {
      const { backend, proxy, url } = await world();
      const random = new Random(seed);
      let cuts = 0;
      // A reset before, in the middle of, or after a piece of data, in either direction, now and then.
      proxy.decide(({ bytes }) => {
        if (!random.chance(1 / 60)) return "pass";
        cuts++;
        return random.chance(0.5) ? "cut" : { cutAfterBytes: random.integer(0, bytes.length) };
      });
      const clients = [0, 1, 2].map(() => createLocks(remoteStore(url), { requestTimeoutMs: 20_000 }));
      toEnd.push(...clients.map((client) => () => client.close()));
      const key = "contended";
      const register = { fence: 0n, holders: 0, most: 0, grants: 0, outages: 0 };
      const work = async (worker: number) => {
        const locks = clients[worker % clients.length]!;
        while (register.grants < 80 || cuts < 8) {
          let lease: Lease;
          try {
            lease = await locks.mutex(key, { ttlMs: 20_000 }).acquire();
          } catch {
            register.outages++;
            continue;
          }
          register.holders++;
          register.most = Math.max(register.most, register.holders);
          register.grants++;
          expect(lease.fence).toBeGreaterThan(register.fence);
          register.fence = lease.fence;
          await new Promise((resolve) => setTimeout(resolve, 1));
          expect(lease.held).toBe(true);
          register.holders--;
          await lease.release();
        }
      };
      await Promise.all(Array.from({ length: 6 }, (_, worker) => work(worker)));
      proxy.heal();
      expect(register.most).toBe(1);
      expect(register.outages).toBe(0);
      // A delayed message brings no released claim back.
      await expect
        .poll(async () => {
          const [status] = (await backend.look({ key, maxClaims: 9 })).keys;
          return [status?.heldCount, status?.waitingCount];
        })
        .toEqual([0, 0]);
      // The ends that are left in the middle were seen.
      expect(proxy.connections).toBeLessThanOrEqual(3);
    },
    60_000,
  );

  test("raw verbs: what was confirmed is so, whatever broke in between", async () => {
    const { backend, proxy, url } = await world();
    const random = new Random(7);
    proxy.decide(() => (random.chance(1 / 20) ? "cut" : "pass"));
    const store = remoteStore(url);
    toEnd.push(() => store.close());
    const again = async <T>(ask: () => Promise<T>): Promise<T> => {
      for (;;) {
        try {
          return await ask();
        } catch (error) {
          expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
          await new Promise((resolve) => setTimeout(resolve, 20));
        }
      }
    };
    for (let round = 0; round < 60; round++) {
      const request = claimRequest(`claim-${round}`, { key: `key-${round}`, ttlMs: 60_000 });
      const held = await again(() => store.acquire(request));
      expect(held).toMatchObject({ state: "held" });
      const [renewed] = await again(() => store.renew([request]));
      expect(renewed).toMatchObject({ state: "held", fence: (held as { fence: bigint }).fence });
      if (round % 2 === 0) await again(() => store.release([request]));
      const [status] = (await backend.look({ key: request.key, maxClaims: 2 })).keys;
      expect(status?.heldCount).toBe(round % 2);
    }
  }, 60_000);
});
