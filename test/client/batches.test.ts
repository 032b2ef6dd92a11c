import { createLocks, memoryStore } from "holdfast";
import { faultyStore, ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

test("many claims that are lost at once are given up in calls of bounded size", async () => {
  const clock = new ManualClock();
  const sizes: number[] = [];
  const store = faultyStore(memoryStore({ clock }), (call) => {
    if (call.verb === "release") sizes.push(call.args[0].length);
    return undefined;
  });
  const locks = createLocks(store, { clock });
  const taking = Array.from({ length: 2_500 }, (_, index) =>
    locks.mutex(`key ${index}`, { renew: false, ttlMs: 1_000 }).acquire(),
  );
  await Promise.all(taking);
  await clock.advance(1_000);
  expect(sizes).toEqual([1_000, 1_000, 500]);
  await locks.close();
});
