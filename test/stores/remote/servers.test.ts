/** Several servers over one store, and servers that come and go. */
import { createLocks, type Locks, memoryStore, type Store } from "holdfast";
import { redisStore } from "holdfast/redis";
import { connectRemote, remoteStore } from "holdfast/remote";
import type { LockServer } from "holdfast/server";
import { Redis } from "ioredis";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { canRunRedis, freePort, type RedisServer, startRedis } from "../../engines/redis.ts";
import { startLockServer } from "../../server/lock-server.ts";
import { storeOver } from "../store-over.ts";

const toEnd: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
});

describe.skipIf(!canRunRedis())("two servers over one Redis", () => {
  let redis: RedisServer;
  beforeAll(async () => {
    redis = await startRedis();
  }, 120_000);
  afterAll(() => redis?.stop());

  function overRedis(): Store {
    const client = new Redis(redis.port, "127.0.0.1");
    toEnd.push(() => client.disconnect());
    return redisStore(client);
  }

  async function start(port = 0): Promise<LockServer> {
    const server = await startLockServer({ store: overRedis(), port, closeStore: true });
    toEnd.push(() => server.stop({ graceMs: 0 }));
    return server;
  }

  test("are one lock space: one holder, one queue, one row of fences", async () => {
    const clients: Locks[] = [];
    for (const server of [await start(), await start()]) clients.push(createLocks(remoteStore(server.url)));
    toEnd.push(...clients.map((client) => () => client.close()));
    let holders = 0;
    let last = 0n;
    const order: bigint[] = [];
    await Promise.all(
      Array.from({ length: 40 }, (_, turn) =>
        clients[turn % 2]!.mutex("one-space").run(async (lease) => {
          expect(++holders).toBe(1);
          expect(lease.fence).toBeGreaterThan(last);
          last = lease.fence;
          order.push(lease.fence);
          await new Promise((resolve) => setTimeout(resolve, 1));
          holders--;
        }),
      ),
    );
    expect(order).toHaveLength(40);
  });

  test("a lease that was taken through one server is kept and released through the other", async () => {
    const [first, second] = [await start(), await start()];
    const locks = createLocks(remoteStore([first.url, second.url]));
    toEnd.push(() => locks.close());
    const lease = await locks.mutex("moves", { ttlMs: 4_500 }).acquire();
    await first.stop();
    await second.stop();
    const third = await start(first.port);
    const states = lease.watch();
    await states.next();
    // Renewed by the server that is left.
    const renewed = await states.next();
    expect(renewed.value).toMatchObject({ held: true, lost: undefined });
    expect(await lease.release()).toBe(true);
    expect(third.port).toBe(first.port);
  });

  test("a rolling restart under load: no error reaches a client that retries as it does by default", async () => {
    const ports = [await freePort(), await freePort()];
    const servers = [await start(ports[0]), await start(ports[1])];
    const urls = servers.map((server) => server.url);
    const clients = [0, 1, 2].map(() => createLocks(remoteStore(urls)));
    toEnd.push(...clients.map((client) => () => client.close()));
    const state = { over: false, cycles: 0, holders: 0, last: 0n };
    const work = async (worker: number) => {
      const locks = clients[worker % clients.length]!;
      for (let cycle = 0; !state.over; cycle++) {
        const own = await locks.mutex(`own-${worker}`).acquire();
        expect(await own.release()).toBe(true);
        if (cycle % 5 === 0) {
          await locks.mutex("hot").run(async (lease) => {
            expect(++state.holders).toBe(1);
            expect(lease.fence).toBeGreaterThan(state.last);
            state.last = lease.fence;
            await new Promise((resolve) => setTimeout(resolve, 1));
            expect(lease.held).toBe(true);
            state.holders--;
          });
        }
        state.cycles++;
      }
    };
    const workers = Promise.all(Array.from({ length: 12 }, (_, worker) => work(worker)));
    workers.catch(() => {
      state.over = true;
    });
    for (let round = 0; round < 4 && !state.over; round++) {
      const place = round % 2;
      const before = state.cycles;
      await servers[place]!.stop();
      await expect.poll(() => state.over || state.cycles > before + 50, { timeout: 20_000 }).toBe(true);
      servers[place] = await start(ports[place]);
      await expect.poll(() => state.over || state.cycles > before + 100, { timeout: 20_000 }).toBe(true);
    }
    state.over = true;
    await workers;
  }, 120_000);
});

describe("a server that stops", () => {
  test("answers what is under way, and sends its clients to another one", async () => {
    const store = memoryStore();
    const [first, second] = [await startLockServer({ store }), await startLockServer({ store })];
    toEnd.push(() => second.stop({ graceMs: 0 }));
    const locks = createLocks(remoteStore([first.url, second.url]));
    toEnd.push(() => locks.close());
    const lease = await locks.mutex("kept").acquire();
    const failuresBefore = locks.stats().failures;
    const cycles = Promise.all(
      Array.from({ length: 200 }, async (_, n) => {
        await new Promise((resolve) => setTimeout(resolve, n));
        await locks.mutex(`key-${n}`).run(() => {});
      }),
    );
    await first.stop();
    await cycles;
    expect(locks.stats().failures).toBe(failuresBefore);
    expect(lease.held).toBe(true);
    expect((await store.look({ key: "kept", maxClaims: 1 })).keys[0]?.heldCount).toBe(1);
    expect(await lease.release()).toBe(true);
  });

  test("is left, and found again when it is back", async () => {
    const store = memoryStore();
    const server = await startLockServer({ store });
    const remote = remoteStore(server.url);
    toEnd.push(() => remote.close());
    const look = () => remote.look({ key: "k", maxClaims: 0 });
    await look();
    await server.stop();
    await expect(look()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    const again = await startLockServer({ store, port: server.port });
    toEnd.push(() => again.stop({ graceMs: 0 }));
    await expect.poll(() => look().then(() => "ok", String), { timeout: 10_000 }).toBe("ok");
  });
});

describe("what the store behind a server is", () => {
  const durable = (durability: Store["durability"], counts: boolean) =>
    storeOver(memoryStore(), { durability, counts });

  test("connectRemote learns it", async () => {
    const server = await startLockServer({ store: durable("quorum", false) });
    toEnd.push(() => server.stop({ graceMs: 0 }));
    const store = await connectRemote(server.url);
    toEnd.push(() => store.close());
    expect([store.durability, store.counts]).toEqual(["quorum", false]);
    const locks = createLocks(store, { closeStore: false });
    expect(() => locks.semaphore("s", 2)).toThrow(expect.objectContaining({ code: "UNSUPPORTED" }));
    locks.mutex("m", { durability: "quorum" });
  });

  test("remoteStore takes it as declared, and does not use a server that has less", async () => {
    const server = await startLockServer({ store: durable("ephemeral", true) });
    toEnd.push(() => server.stop({ graceMs: 0 }));
    const store = remoteStore(server.url, { durability: "local" });
    toEnd.push(() => store.close());
    await expect(store.look({ key: "k", maxClaims: 0 })).rejects.toMatchObject({
      code: "DURABILITY_UNAVAILABLE",
    });
  });

  test("a server over a store that cannot count refuses semaphores by itself", async () => {
    const server = await startLockServer({ store: durable("ephemeral", false) });
    toEnd.push(() => server.stop({ graceMs: 0 }));
    const locks = createLocks(remoteStore(server.url));
    toEnd.push(() => locks.close());
    await expect(locks.semaphore("s", 2).acquire()).rejects.toMatchObject({ code: "UNSUPPORTED" });
    await locks.rwLock("rw").read.run(() => {});
  });

  test("connectRemote says when no server answers", async () => {
    const url = `http://127.0.0.1:${await freePort()}`;
    await expect(connectRemote(url)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("an address that is no lock server is told as such", async () => {
    const { createServer } = await import("node:http2");
    const other = createServer((_, response) => {
      response.statusCode = 404;
      response.end();
    }).listen(0, "127.0.0.1");
    await new Promise((resolve) => other.once("listening", resolve));
    toEnd.push(() => other.close());
    const { port } = other.address() as { port: number };
    await expect(connectRemote(`http://127.0.0.1:${port}`)).rejects.toMatchObject({ code: "STORE_FAILURE" });
  });
});
