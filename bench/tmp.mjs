import { randomUUID } from "node:crypto";
import { Mutex } from "async-mutex";
import { createLocks, memoryStore } from "/work/main/dist/index.js";

const time = async (name, n, f) => {
  for (let i = 0; i < n / 5; i++) f();
  const t = performance.now();
  for (let i = 0; i < n; i++) f();
  console.log(name.padEnd(30), (((performance.now() - t) / n) * 1e6).toFixed(0), "ns");
};
if (process.argv[2] === "micro") {
  await time("randomUUID", 1e6, () => randomUUID());
  await time("performance.now", 1e6, () => performance.now());
  await time("BigInt", 1e6, () => BigInt(Math.floor(performance.now() * 1e5)));
  await time("AbortController", 1e5, () => new AbortController());
  const reg = new FinalizationRegistry(() => {});
  await time("FR reg/unreg", 3e5, () => {
    const o = {};
    const t = {};
    reg.register(o, t, t);
    reg.unregister(t);
  });
  await time("new Map", 1e6, () => /* @__PURE__ */ new Map([["a", 1]]));
  const s = memoryStore();
  const req = {
    key: "k",
    id: "a",
    token: "a",
    weight: 1,
    limit: 1,
    priority: 0,
    ttlMs: 3e4,
    wait: true,
    owner: "o",
    info: "",
    application: "",
  };
  const N = 3e5;
  for (let k = 0; k < 2; k++) {
    const t = performance.now();
    for (let i = 0; i < N; i++) {
      await s.acquire(req);
      await s.release([req]);
    }
    console.log("store cycle", (((performance.now() - t) / N) * 1e6).toFixed(0), "ns");
  }
} else {
  const L = createLocks(memoryStore());
  const mm = L.mutex("k");
  const am = new Mutex();
  for (let k = 0; k < 4; k++) {
    const N = 2e5;
    let t = performance.now();
    for (let i = 0; i < N; i++) {
      const r = await am.acquire();
      r();
    }
    const a = ((performance.now() - t) / N) * 1e6;
    t = performance.now();
    for (let i = 0; i < N; i++) {
      const l = await mm.acquire();
      await l.release();
    }
    const b = ((performance.now() - t) / N) * 1e6;
    t = performance.now();
    const one = async (f) => {
      const t2 = performance.now();
      await Promise.all(
        Array.from({ length: 100 }, async () => {
          for (let i = 0; i < 1e3; i++) await f();
        }),
      );
      return ((performance.now() - t2) * 1e6) / 1e5;
    };
    const c = await one(async () => {
      const r = await am.acquire();
      r();
    });
    const d = await one(async () => {
      const l = await mm.acquire();
      await l.release();
    });
    console.log({
      async: a | 0,
      holdfast: b | 0,
      ratio: (a / b).toFixed(2),
      asyncC: c | 0,
      holdC: d | 0,
      ratioC: (c / d).toFixed(2),
    });
  }
  await L.close();
}
