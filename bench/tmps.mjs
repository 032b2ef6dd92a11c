import { memoryStore } from "/work/main/dist/index.js";
import { acquire, release, renew, emptyRecord } from "/work/main/dist/core/record.js";
const req = (i) => ({ key: "k", id: "id-0000-1111-"+i, token: "token-0000-1111-2222"+i, weight: 1, limit: 1, priority: 0, ttlMs: 30000, wait: true, owner: "o", info: "", application: "" });
for (let k = 0; k < 3; k++) {
  const r = emptyRecord(); let now = 1e12; let q = [];
  for (let i = 0; i < 100; i++) { q.push(req(i)); acquire(r, q[i], 1e5, { nowMs: now, stamp: 1n, granted: [] }); }
  const N = 3e5; const t = performance.now();
  for (let i = 100; i < N; i++) {
    if (i % 50 === 0) now++;
    release(r, q[i - 100], { nowMs: now, stamp: 1n, granted: [] });
    renew(r, q[i - 99], { nowMs: now, stamp: 1n, granted: [] });
    const x = req(i); q.push(x); acquire(r, x, 1e5, { nowMs: now, stamp: 1n, granted: [] });
  }
  console.log("machine cycle", ((performance.now() - t) / N * 1e6).toFixed(0));
}
for (let k = 0; k < 3; k++) {
  const s = memoryStore(); let q = []; s.onGrant("o", () => {});
  for (let i = 0; i < 100; i++) { q.push(req(i)); await s.acquire(q[i]); }
  const N = 3e5; const t = performance.now();
  for (let i = 100; i < N; i++) {
    await s.release([q[i - 100]]);
    await s.renew([q[i - 99]]);
    const x = req(i); q.push(x); await s.acquire(x);
  }
  console.log("store cycle", ((performance.now() - t) / N * 1e6).toFixed(0));
}
