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
