import { randomUUID } from "node:crypto";
import { Mutex } from "async-mutex";
import { createLocks, memoryStore } from "/work/main/dist/index.js";

const time = async (name, n, f) => {
  for (let i = 0; i < n / 5; i++) f();
  const t = performance.now();
  for (let i = 0; i < n; i++) f();
  console.log(name.padEnd(30), (((performance.now() - t) / n) * 1e6).toFixed(0), "ns");
};

const L = createLocks(memoryStore());
const mm = L.mutex("k");
const one = async (f) => {
  const t = performance.now();
  await Promise.all(
    Array.from({ length: 100 }, async () => {
      for (let i = 0; i < 3000; i++) await f();
    }),
  );
  return ((performance.now() - t) * 1e6) / 3e5;
};
for (let k = 0; k < 4; k++)
  console.log(
    (
      await one(async () => {
        const l = await mm.acquire();
        await l.release();
      })
    ).toFixed(0),
  );
