import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createLocks, memoryStore } from "holdfast";
import { ManualClock, settled } from "holdfast/testing";
import { expect, test } from "vitest";

test("a lost lease that had to be held for its release is not won again after it", async () => {
  const clock = new ManualClock();
  const locks = createLocks(memoryStore({ clock }), { clock });
  const lease = await locks.mutex("leader", { ttlMs: 3_000, reacquire: true }).acquire();
  const next = locks.mutex("leader").acquire();
  await settled();
  await locks.forceRelease("leader", lease.id);
  await clock.advance(1_000);
  expect(lease.held).toBe(false);

  await expect(lease.release({ mustHold: true })).rejects.toMatchObject({ code: "LEASE_LOST" });
  await (await next).release();
  await clock.advance(3_000);
  expect(lease.held).toBe(false);
  expect(await locks.inspect("leader")).toMatchObject({ heldCount: 0, waitingCount: 0 });
});

test("a watcher that finds the lease expired is told so once", async () => {
  const clock = new ManualClock();
  const locks = createLocks(memoryStore({ clock }), { clock });
  const lease = await locks.mutex("k", { ttlMs: 3_000 }).acquire();
  // No timer has run, so it is the look at the state that finds the deadline past.
  clock.block(5_000);
  const losses: unknown[] = [];
  for await (const { lost } of lease.watch()) losses.push(lost);
  expect(losses).toEqual(["expired"]);
});

test("a lease that is forgotten while it is being won again leaves the queue, and its signal aborts", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const clock = new ManualClock();
  const warnings: string[] = [];
  const locks = createLocks(memoryStore({ clock }), { clock, onWarning: ({ code }) => warnings.push(code) });
  const lock = locks.mutex("leader", { ttlMs: 3_000, reacquire: true });
  const forget = async () => {
    const lease = await lock.acquire();
    await locks.forceRelease("leader", lease.id);
    return lease.signal;
  };
  const signal = await forget();
  const next = await locks.mutex("leader").acquire();
  await clock.advance(1_000);
  expect(await lock.inspect()).toMatchObject({ waitingCount: 1 });
  while (warnings.length === 0) {
    collect();
    await settled();
  }
  await settled();
  expect(warnings).toEqual(["UNRELEASED_LEASE"]);
  expect(await lock.inspect()).toMatchObject({ held: [{ id: next.id }], waitingCount: 0 });
  expect(signal.reason).toMatchObject({ reason: "abandoned" });
  expect(locks.stats()).toMatchObject({ lost: 1, unreleased: 1 });
});
