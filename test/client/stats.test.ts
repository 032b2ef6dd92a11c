import type { LocksStats } from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

/** Fails unless every lease that was ever granted is accounted for. */
function expectToAddUp(stats: LocksStats): void {
  expect(stats.held + stats.released + stats.detached + stats.lost).toBe(stats.granted);
  expect(Object.values(stats.lostBy).reduce((sum, count) => sum + count, 0)).toBe(stats.lost);
}

describe("stats", () => {
  test("begin at nothing, and are a copy", () => {
    const { locks } = new Scene();
    const { lostBy, storeAvailable, ...counts } = locks.stats();
    expect(Object.values({ ...counts, ...lostBy }).every((count) => count === 0)).toBe(true);
    expect(storeAvailable).toBe(true);
    expect(locks.stats()).not.toBe(locks.stats());
    expect(locks.stats().lostBy).not.toBe(lostBy);
  });

  test("count what is open now and what has happened so far", async () => {
    const scene = new Scene();
    const rival = await scene.rival().mutex("busy").acquire();
    const kept = await scene.locks.mutex("kept", { ttlMs: TTL_MS }).acquire();
    const given = await scene.locks.mutex("given").acquire();
    scene.keep(await scene.locks.mutex("lost", { ttlMs: TTL_MS, renew: false }).acquire());
    scene.begin(scene.locks.mutex("busy").acquire());
    expect(await scene.locks.mutex("busy").tryAcquire()).toBeNull();
    await given.release();
    await given.release();
    await scene.clock.advance(TTL_MS);
    const stats = scene.locks.stats();
    expect(stats).toEqual({
      held: 1,
      waiting: 1,
      asked: 5,
      granted: 3,
      regained: 0,
      contended: 1,
      timedOut: 0,
      cancelled: 0,
      failed: 0,
      released: 1,
      releaseFailures: 0,
      detached: 0,
      lost: 1,
      lostBy: { expired: 1, gone: 0, "taken-over": 0, "max-hold": 0, abandoned: 0, closed: 0, blocked: 0 },
      unreleased: 0,
      renewals: 3,
      renewalFailures: 0,
      failures: 0,
      outages: 0,
      skipped: 0,
      forceReleased: 0,
      warnings: 0,
      storeAvailable: true,
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
    scene.keep(await rival.mutex("k").acquire());
    await scene.clock.advance(1_000);
    expect(scene.locks.stats()).toMatchObject({ granted: 2, held: 0, lost: 2, waiting: 1 });
    await lease.release();
    expectToAddUp(scene.locks.stats());
    expect(scene.locks.stats()).toMatchObject({ waiting: 0, asked: 1, regained: 1, cancelled: 0 });
    expect(scene.locks.stats().lostBy).toMatchObject({ gone: 2 });
  });

  test("tell apart how calls ended that got nothing", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.keep(await scene.rival().mutex("busy").acquire());
    const busy = scene.locks.mutex("busy");
    const cancelled = new AbortController();
    scene.begin(busy.acquire({ waitMs: 100 }));
    scene.begin(busy.acquire({ signal: cancelled.signal }));
    scene.begin(busy.acquire());
    await busy.tryAcquire();
    scene.begin(busy.acquire({ waitMs: 0 }));
    await scene.clock.advance(100);
    cancelled.abort();
    await scene.clock.advance(0);
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("k").acquire());
    scene.begin(scene.locks.mutex("k", { onUnavailable: "skip" }).tryAcquire());
    await scene.clock.advance(600);
    expect(scene.locks.stats()).toMatchObject({ failed: 2, skipped: 1, outages: 1, storeAvailable: false });
    scene.reconnect();
    await scene.locks.close();
    const stats = scene.locks.stats();
    expect(stats).toMatchObject({ timedOut: 1, cancelled: 2, contended: 2, failed: 2, storeAvailable: true });
    expect(stats.asked).toBe(stats.timedOut + stats.cancelled + stats.contended + stats.failed);
    expect(stats.warnings).toBe(scene.warnings.length);
  });

  test("count heartbeats of held leases that fail or are not answered", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    scene.faults = ({ verb }) => (verb === "renew" ? { lose: "request" } : undefined);
    await scene.clock.advance(1_000);
    expect(scene.locks.stats()).toMatchObject({ renewalFailures: 1, failures: 1 });
    scene.reconnect();
    await scene.clock.advance(200);
    scene.cutOff();
    await scene.clock.advance(1_600);
    expect(scene.locks.stats()).toMatchObject({ renewalFailures: 2, failures: 1, held: 1 });
  });

  test("count what is left to others, and what is ended by force", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    lease.detach();
    expect(await scene.locks.forceRelease("k", lease.id)).toBe(true);
    expect(await scene.locks.forceRelease("k", lease.id)).toBe(false);
    expect(scene.locks.stats()).toMatchObject({ detached: 1, forceReleased: 1 });
    expectToAddUp(scene.locks.stats());
  });

  test("add up after an outage, and after closing", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    for (const key of ["a", "b"]) scene.keep(await scene.locks.mutex(key, { ttlMs: TTL_MS }).acquire());
    const kept = await scene.locks.mutex("c", { ttlMs: 60_000 }).acquire();
    scene.refuseCalls();
    const failing = scene.begin(kept.release());
    await scene.clock.advance(TTL_MS);
    expect(failing.state).toBe("rejected");
    scene.reconnect();
    scene.keep(await scene.locks.mutex("d").acquire());
    await scene.locks.close();
    const stats = scene.locks.stats();
    expect(stats).toMatchObject({ granted: 4, held: 0, released: 1, releaseFailures: 1, lost: 3 });
    expect(stats.lostBy).toMatchObject({ expired: 2, closed: 1 });
    expect(stats.failures).toBeGreaterThan(0);
    expectToAddUp(stats);
  });
});
