/** A process that waits for many keys finds out which of their holders is gone, also where nobody tells it. */
import { expect, test } from "vitest";
import { attempt, wait } from "../cas/scene.ts";
import { createScene } from "./scene.ts";

/** More than are looked at together with the changes themselves. */
const HOLDERS = 40;

test("etcd: whoever waits for the keys of many holders is served when one of them is gone, also where all events are lost", async () => {
  const { store, another, soon, pass } = createScene((what) => (what.includes("event") ? 1e9 : 1));
  const holders = Array.from({ length: HOLDERS }, (_, n) => ({ key: `k${n}`, ...another() }));
  for (const holder of holders)
    expect(await soon(holder.store.acquire(attempt(holder.key, "holder")))).toMatchObject({ state: "held" });
  const waiting = holders.map(({ key }) => wait(key, "waiter", { owner: "me", ttlMs: 60_000 }));
  await Promise.all(waiting.map((request) => soon(store.acquire(request))));
  for (const dead of [11, 38]) {
    holders[dead]?.die();
    // Its lease ends with it. The others renew theirs.
    for (let round = 0; round < 5; round++) {
      await pass(3_000);
      const others = holders.filter((_, n) => n !== dead && n !== 11);
      for (const { store: theirs, key } of others) await soon(theirs.renew([attempt(key, "holder")]));
      await soon(store.renew(waiting));
    }
    const answers = await soon(store.renew(waiting));
    expect((answers as { state: string }[])[dead]).toMatchObject({ state: "held" });
  }
});

test("etcd: whoever waits for a semaphore is served when any of its many holders is gone, also where all events are lost", async () => {
  for (const dead of [0, 7, 8, 15, 23, 29]) {
    const { store, another, soon, pass } = createScene((what) => (what.includes("event") ? 1e9 : 1));
    const holders = Array.from({ length: 30 }, (_, nth) => ({ nth, ...another() }));
    const claimOf = (nth: number) => attempt("k", `holder-${nth}`, { limit: 30, ttlMs: 99_000 });
    for (const { nth, store: theirs } of holders)
      expect(await soon(theirs.acquire(claimOf(nth)))).toMatchObject({ state: "held" });
    holders[dead]?.die();
    await pass(50_000);
    for (const { nth, store: theirs } of holders) if (nth !== dead) await soon(theirs.renew([claimOf(nth)]));
    const waiter = wait("k", "waiter", { owner: "me", ttlMs: 60_000, limit: 30 });
    expect(await soon(store.acquire(waiter))).toMatchObject({ state: "waiting" });
    await pass(50_000);
    // One heartbeat looks at those who hold, and the next one finds what came of it.
    await soon(store.renew([waiter]));
    await pass(1_000);
    expect(await soon(store.renew([waiter])), `without holder ${dead}`).toMatchObject([{ state: "held" }]);
  }
});

test("etcd: whoever tries is told of room that one of many holders has left by its end", async () => {
  const { store, another, soon, pass } = createScene(() => 1);
  const holders = Array.from({ length: 30 }, (_, nth) => ({ nth, ...another() }));
  const claimOf = (id: string) => attempt("k", id, { limit: 30, ttlMs: 99_000 });
  for (const { nth, store: theirs } of holders) await soon(theirs.acquire(claimOf(`holder-${nth}`)));
  expect(await soon(store.acquire(claimOf("early")))).toMatchObject({ state: "refused" });
  for (const dead of [29, 12]) {
    holders[dead]?.die();
    await pass(120_000);
    for (const { nth, store: theirs } of holders)
      if (nth < dead && nth !== 12) await soon(theirs.renew([claimOf(`holder-${nth}`)]));
    expect(await soon(store.acquire(claimOf(`next-${dead}`)))).toMatchObject({ state: "held" });
  }
});

// The answer must not wait for the looks at other holders, or it is late for a short lease.
test("etcd: a heartbeat that was confirmed is answered at once, also where the looks at many holders are lost", async () => {
  let isLost = false;
  let lost = 0;
  const { store, another, soon, nowMs } = createScene((what) => {
    const isLook = what.startsWith("txn") && !what.includes("compare") && what.includes("holdfast/a/");
    if (!isLost || !isLook) return 1;
    lost++;
    return Number.POSITIVE_INFINITY;
  });
  const holders = Array.from({ length: 12 }, (_, nth) => ({ key: `k${nth}`, ...another() }));
  for (const { key, store: theirs } of holders) await soon(theirs.acquire(attempt(key, "holder")));
  const mine = attempt("mine", "mine", { ttlMs: 3_000 });
  await soon(store.acquire(mine));
  const waiting = holders.map(({ key }) => wait(key, "waiter", { owner: "me", ttlMs: 60_000 }));
  await Promise.all(waiting.map((request) => soon(store.acquire(request))));
  isLost = true;
  const sentMs = nowMs();
  const [renewed] = (await soon(store.renew([mine, ...waiting]))) as { state: string }[];
  expect(renewed).toMatchObject({ state: "held" });
  expect(lost).toBeGreaterThan(0);
  expect(nowMs() - sentMs).toBeLessThan(50);
});

test("etcd: whoever tries beside a heartbeat of the same lock is told of room as well", async () => {
  for (const dead of [3, 12, 15, 24]) {
    const { store, another, soon, pass } = createScene((what) => (what.includes("event") ? 1e9 : 1));
    const claimOf = (id: string) => attempt("k", id, { limit: 30, ttlMs: 99_000 });
    const holders = Array.from({ length: 29 }, (_, nth) => ({ nth, ...another() }));
    await soon(store.acquire(claimOf("mine")));
    for (const { nth, store: theirs } of holders) await soon(theirs.acquire(claimOf(`holder-${nth}`)));
    expect(await soon(store.acquire(claimOf("early")))).toMatchObject({ state: "refused" });
    holders[dead]?.die();
    for (let round = 0; round < 4; round++) {
      await pass(30_000);
      for (const { nth, store: theirs } of holders)
        if (nth !== dead) await soon(theirs.renew([claimOf(`holder-${nth}`)]));
      if (round === 1) await soon(store.renew([claimOf("mine")]));
    }
    const renewed = store.renew([claimOf("mine")]);
    expect(await soon(store.acquire(claimOf("next"))), `without ${dead}`).toMatchObject({ state: "held" });
    await renewed;
  }
});

/** So many that some are looked at after the answer, and some are not compared with what is written. */
const SEATS = 14;

test.each([0, 9, 10, 13])(
  "etcd: an outage of the look at holder %i of many is not read as contention",
  async (dead) => {
    let isLost = false;
    const { store, another, soon, pass } = createScene((what) => {
      const isLook = what.startsWith("txn") && !what.includes("compare") && what.includes("holdfast/a/");
      return isLost && isLook ? Number.POSITIVE_INFINITY : 1;
    });
    const claimOf = (id: string) => attempt("k", id, { limit: SEATS, ttlMs: 600_000 });
    const holders = Array.from({ length: SEATS }, (_, nth) => ({ nth, ...another() }));
    for (const { nth, store: theirs } of holders) await soon(theirs.acquire(claimOf(`holder-${nth}`)));
    const next = attempt("k", "next", { limit: SEATS, ttlMs: 10_000 });
    expect(await soon(store.acquire(next))).toMatchObject({ state: "refused" });
    holders[dead]?.die();
    await pass(300_000);
    for (const { nth, store: theirs } of holders)
      if (nth !== dead) await soon(theirs.renew([claimOf(`holder-${nth}`)]));
    await pass(400_000);
    isLost = true;
    const answer = (await soon(store.acquire(next))) as { state?: string; code?: string };
    // The first ten are looked at together with the answer.
    expect(answer).toMatchObject(dead < 10 ? { state: "held" } : { code: "STORE_UNAVAILABLE" });
    isLost = false;
    expect(await soon(store.acquire(next))).toMatchObject({ state: "held" });
  },
);

test.each([1, 8, 12, 13])(
  "etcd: a try that drops one dead holder is told of the room that holder %i has left",
  async (dead) => {
    const { store, another, soon, pass, leftMs, recordOf } = createScene(() => 1);
    const claimOf = (nth: number) =>
      attempt("k", `h${nth}`, { limit: SEATS, ttlMs: nth === 0 ? 60_000 : 700_000 });
    const other = (id: string, ttlMs = 60_000) => attempt("other", id, { ttlMs });
    const holders = Array.from({ length: SEATS }, () => another());
    for (const [nth, theirs] of holders.entries()) await soon(theirs.store.acquire(claimOf(nth)));
    await soon(holders[0]!.store.acquire(other("first")));
    holders[dead]?.die();
    for (let round = 0; round < 10; round++) {
      await pass(50_000);
      await soon(holders[0]!.store.renew([other("first")]));
      for (const [nth, theirs] of holders.entries())
        if (nth !== dead && (nth === 0 || round === 9)) await soon(theirs.store.renew([claimOf(nth)]));
    }
    holders[0]?.die();
    await pass(65_000);
    // This process learns that the lease of the first has ended, and nothing of the key itself.
    expect(await soon(store.acquire(other("mine", 700_000)))).toMatchObject({ state: "held" });
    await pass(150_000);
    const alive = recordOf("k")?.held.filter(({ etcdLease }) => leftMs(etcdLease) !== undefined);
    expect(alive).toHaveLength(SEATS - 2);
    const both = attempt("k", "next", { limit: SEATS, weight: 2 });
    expect(await soon(store.acquire(both))).toMatchObject({ state: "held" });
  },
);
