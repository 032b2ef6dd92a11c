/** Several servers over one database, each with a store of its own as its process would have: one lock space. */
import { createLocks } from "holdfast";
import { openStore } from "holdfast/open";
import { remoteStore } from "holdfast/remote";
import { afterEach, expect, test } from "vitest";
import { canRunEtcd, startEtcd } from "../../engines/etcd.ts";
import { canRunPostgres, startPostgres } from "../../engines/postgres.ts";
import { canRunRedis, startRedis } from "../../engines/redis.ts";
import { startLockServer } from "../../server/lock-server.ts";

const toEnd: (() => unknown)[] = [];
afterEach(async () => {
  for (const end of toEnd.splice(0).reverse()) await end();
}, 60_000);

/** Each starts an engine, and says by which URL its store is opened. */
const engines: Readonly<Record<string, { canRun(): boolean; start(): Promise<string> }>> = {
  Redis: {
    canRun: canRunRedis,
    start: async () => `redis://127.0.0.1:${(await ended(startRedis())).port}`,
  },
  PostgreSQL: {
    canRun: canRunPostgres,
    start: async () => (await ended(startPostgres())).url,
  },
  etcd: {
    canRun: canRunEtcd,
    start: async () => (await ended(startEtcd())).url.replace(/^http/, "etcd"),
  },
};

async function ended<T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> {
  const engine = await starting;
  toEnd.push(() => engine.stop());
  return engine;
}

for (const [name, engine] of Object.entries(engines)) {
  test.skipIf(!engine.canRun())(
    `two servers over one ${name} are one lock space: one holder, one queue, fences that grow`,
    async () => {
      const url = await engine.start();
      const clients = [];
      for (let server = 0; server < 2; server++) {
        const { url: serverUrl, stop } = await startLockServer({
          store: await openStore(url),
          closeStore: true,
        });
        toEnd.push(() => stop({ graceMs: 0 }));
        const locks = createLocks(remoteStore(serverUrl));
        toEnd.push(() => locks.close());
        clients.push(locks);
      }
      const [here, there] = clients;
      const key = "one-space";
      const holder = await here!.mutex(key).acquire();
      expect(await there!.mutex(key).tryAcquire()).toBeNull();
      const order: string[] = [];
      const fences: bigint[] = [holder.fence];
      const waiting: Promise<void>[] = [];
      for (const [place, locks] of [there, here, there, here].entries()) {
        const body = (lease: { fence: bigint }) => {
          order.push(`${place}`);
          fences.push(lease.fence);
        };
        waiting.push(locks!.mutex(key).run(body));
        await expect
          .poll(async () => (await here!.inspect(key)).waitingCount, { timeout: 15_000 })
          .toBe(place + 1);
      }
      // Each sees what the other has.
      const [seen] = (await there!.inspect(key)).held;
      expect(seen).toMatchObject({ id: holder.id, fence: holder.fence });
      await holder.release();
      await Promise.all(waiting);
      expect(order).toEqual(["0", "1", "2", "3"]);
      expect(fences).toEqual(fences.toSorted((a, b) => (a < b ? -1 : 1)));
      expect(new Set(fences).size).toBe(5);
    },
    120_000,
  );
}
