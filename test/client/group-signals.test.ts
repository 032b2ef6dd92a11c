import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createLocks, memoryStore } from "holdfast";
import { ManualClock, settled } from "holdfast/testing";
import { expect, test } from "vitest";

test("a group that waits is cancelled by its caller and by the loss of what it has", async () => {
  const clock = new ManualClock();
  const locks = createLocks(memoryStore({ clock }), { clock });
  const group = locks.all([locks.mutex("a", { ttlMs: 3_000 }), locks.mutex("b")]);
  const blocker = await locks.mutex("b").acquire();

  const aborted = group.acquire({ signal: AbortSignal.abort(new Error("never mind")) });
  await expect(aborted).rejects.toThrow("never mind");

  const controller = new AbortController();
  const cancelled = group.acquire({ signal: controller.signal });
  cancelled.catch(() => {});
  await settled();
  controller.abort(new Error("changed my mind"));
  await expect(cancelled).rejects.toThrow("changed my mind");

  const losing = group.acquire();
  losing.catch(() => {});
  await settled();
  const [held] = (await locks.inspect("a")).held;
  await locks.forceRelease("a", held!.id);
  await clock.advance(1_000);
  await expect(losing).rejects.toMatchObject({ code: "LEASE_LOST", key: "a" });
  expect(await locks.inspect("a")).toMatchObject({ heldCount: 0 });
  expect(await locks.inspect("b")).toMatchObject({ held: [{ id: blocker.id }], waitingCount: 0 });
});

test("a signal that cancels many groups in turn remembers none of them", async () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const locks = createLocks(memoryStore());
  const group = locks.all([locks.mutex("a"), locks.mutex("b")]);
  const { signal } = new AbortController();
  const cycle = async (count: number) => {
    for (let done = 0; done < count; done++) await (await group.acquire({ signal })).release();
    await settled();
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = await cycle(2_000);
  // It was 1.1 MB.
  expect((await cycle(10_000)) - before).toBeLessThan(500_000);
});

test("a lock that is to be won again when lost cannot be in a group", () => {
  const locks = createLocks(memoryStore());
  const role = locks.mutex("role", { reacquire: true });
  expect(() => locks.all([locks.mutex("a"), role])).toThrow(/"role", because its lock has reacquire/);
});
