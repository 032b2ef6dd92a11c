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
