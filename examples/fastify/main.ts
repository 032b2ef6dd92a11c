/**
 * A Fastify server with a locked route: orders wait for their item, and one that waits for too long is answered with 423.
 *
 * It starts, sends itself requests at the same time, prints what happened and stops. Run it after `npm run build`:
 * `TSX_TSCONFIG_PATH=examples/tsconfig.json node --import tsx examples/fastify/main.ts`
 */
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import fastify from "fastify";
import { memoryStore } from "holdfast";
import { holdfastPlugin, locked } from "holdfast/fastify";

const stock = new Map([["chair", 3]]);
const app = fastify();
await app.register(holdfastPlugin, { store: memoryStore(), application: "shop" });

/** Reads, thinks and writes: without the lock, all would read 3. */
app.post<{ Params: { item: string } }>(
  "/orders/:item",
  locked<{ Params: { item: string } }>(
    (request) => `item:${request.params.item}`,
    async (request, _reply, lease) => {
      const { item } = request.params;
      const left = stock.get(item) ?? 0;
      await sleep(20, undefined, { signal: lease.signal });
      if (left === 0) return { ordered: false };
      stock.set(item, left - 1);
      return { ordered: true };
    },
    { waitMs: 5_000 },
  ),
);
app.post(
  "/inventory",
  locked("inventory", async () => "counted", { waitMs: 0 }),
);

await app.listen({ port: 0, host: "127.0.0.1" });
const { port } = app.server.address() as AddressInfo;
const post = (path: string) => fetch(`http://127.0.0.1:${port}${path}`, { method: "POST" });

const orders = await Promise.all(
  Array.from(
    { length: 5 },
    async () => (await post("/orders/chair")).json() as Promise<{ ordered: boolean }>,
  ),
);
console.log(
  `five orders of three chairs: ${orders.filter(({ ordered }) => ordered).length} ordered, ${stock.get("chair")} left`,
);

const counting = await app.locks.mutex("inventory").acquire();
console.log(`inventory while it is locked: ${(await post("/inventory")).status}`);
await counting.release();
console.log(`inventory after that: ${(await post("/inventory")).status}`);

const { locks } = app;
await app.close();
const { granted, released, lost } = locks.stats();
console.log(`granted ${granted}, released ${released}, lost ${lost}`);
