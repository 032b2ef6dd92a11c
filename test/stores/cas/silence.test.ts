/** A database that answers for some keys, and keeps silent about others. */
import { createLocks } from "holdfast";
import type { CasDriver } from "holdfast/cas";
import { expect, test } from "vitest";
import { createScene } from "./scene.ts";

// (1) Both leases are renewed in one call. (2) "a" is renewed at once, and "b" hangs, as in a row that somebody keeps locked. (3) The answer for "a" waits
// for that of "b", until both leases are over.
test("cas: a key about which the database keeps silent does not cost the lease on another", async () => {
  const scene = createScene();
  let hangs = false;
  const wrap = (driver: CasDriver): CasDriver => ({
    ...driver,
    swap: (batch) =>
      hangs && batch.changes.some(({ key }) => key === "b") ? new Promise(() => {}) : driver.swap(batch),
  });
  const { store } = scene.process({ wrap });
  const locks = createLocks(store, { clock: scene.clock, closeStore: false, onWarning: () => {} });
  const a = await scene.soon(locks.mutex("a", { ttlMs: 3_000 }).acquire());
  const b = await scene.soon(locks.mutex("b", { ttlMs: 3_000 }).acquire());
  await scene.clock.advance(500);
  hangs = true;
  // A flight of its own, so that "a" is not in the same.
  b.extend(3_000).catch(() => {});
  await scene.clock.advance(4_000);
  expect(b.held).toBe(false);
  expect(a.held).toBe(true);
  await scene.clock.advance(10_000);
  expect(a.held).toBe(true);
});
