import type { LocksStats } from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

/** Fails unless every lease that was ever granted is accounted for. */
function expectToAddUp(stats: LocksStats): void {
  expect(stats.held + stats.released + stats.lost).toBe(stats.granted);
}

describe("stats", () => {
  test("begin at nothing, and are a copy", () => {
    const { locks } = new Scene();
    const stats = locks.stats();
    expect(Object.values(stats).every((count) => count === 0)).toBe(true);
    expect(locks.stats()).not.toBe(stats);
  });

  test("count what is open now and what has happened so far", async () => {
    const scene = new Scene();
    const rival = await scene.rival().mutex("busy").acquire();
    const kept = await scene.locks.mutex("kept", { ttlMs: TTL_MS }).acquire();
    const given = await scene.locks.mutex("given").acquire();
    await scene.locks.mutex("lost", { ttlMs: TTL_MS, renew: false }).acquire();
    scene.begin(scene.locks.mutex("busy").acquire());
    expect(await scene.locks.mutex("busy").tryAcquire()).toBeNull();
    await given.release();
    await given.release();
    await scene.clock.advance(TTL_MS);
    const stats = scene.locks.stats();
    expect(stats).toEqual({
      held: 1,
      waiting: 1,
      granted: 3,
      released: 1,
      lost: 1,
      unreleased: 0,
      renewals: 3,
      failures: 0,
      skipped: 0,
    });
    expectToAddUp(stats);
    await rival.release();
    await scene.clock.advance(0);
    expect(scene.locks.stats()).toMatchObject({ held: 2, waiting: 0, granted: 4 });
    expect(kept.held).toBe(true);
  });

  test("add up when a lease is won again, lost again, and given back while it is lost", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).acquire();
    const rival = scene.rival();
    await rival.forceRelease("k", lease.id);
    await scene.clock.advance(1_000);
    expect(scene.locks.stats()).toMatchObject({ granted: 2, held: 1, lost: 1 });
    await rival.forceRelease("k", lease.id);
    await rival.mutex("k").acquire();
    await scene.clock.advance(1_000);
    expect(scene.locks.stats()).toMatchObject({ granted: 2, held: 0, lost: 2, waiting: 1 });
    await lease.release();
    expectToAddUp(scene.locks.stats());
    expect(scene.locks.stats().waiting).toBe(0);
  });

  test("add up after an outage, and after closing", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    for (const key of ["a", "b"]) await scene.locks.mutex(key, { ttlMs: TTL_MS }).acquire();
    const kept = await scene.locks.mutex("c", { ttlMs: 60_000 }).acquire();
    scene.refuseCalls();
    const failing = scene.begin(kept.release());
    await scene.clock.advance(TTL_MS);
    expect(failing.state).toBe("rejected");
    scene.reconnect();
    await scene.locks.mutex("d").acquire();
    await scene.locks.close();
    const stats = scene.locks.stats();
    expect(stats).toMatchObject({ granted: 4, held: 0, released: 1, lost: 3 });
    expect(stats.failures).toBeGreaterThan(0);
    expectToAddUp(stats);
  });
});
