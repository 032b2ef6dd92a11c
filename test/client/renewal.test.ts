/** How often a lease renews itself, and how that is stopped and started. */
import type { HoldfastError } from "holdfast";
import { settled } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { PROVEN_MS, Scene, TTL_MS } from "./scene.ts";

const refusal = (words: RegExp) =>
  expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringMatching(words) });

/** When the scene's client has sent renewals, in milliseconds since the scene began. */
function renewalTimes(scene: Scene): number[] {
  const times: number[] = [];
  scene.faults = (call) => {
    if (call.verb === "renew") times.push(scene.nowMs);
    return undefined;
  };
  return times;
}

describe("renewEveryMs", () => {
  test("is how often a lease is renewed, a third of the ttl by default", async () => {
    const scene = new Scene();
    const times = renewalTimes(scene);
    const often = scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, renewEveryMs: 200 }).acquire());
    await scene.clock.advance(1_000);
    expect(times).toEqual([200, 400, 600, 800, 1_000]);
    await often.release();
    times.length = 0;
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(2_000);
    expect(times).toEqual([2_000, 3_000]);
  });

  test("of a lease with a long ttl is not hurried by others that are renewed more often", async () => {
    const scene = new Scene();
    const times: number[] = [];
    scene.faults = (call) => {
      if (call.verb === "renew" && call.args[0].some(({ key }) => key === "seldom")) times.push(scene.nowMs);
      return undefined;
    };
    const day = 86_400_000;
    scene.keep(await scene.locks.mutex("often", { ttlMs: day, renewEveryMs: 1_000 }).acquire());
    scene.keep(await scene.locks.mutex("seldom", { ttlMs: day, renewEveryMs: 30_000 }).acquire());
    await scene.clock.advance(60_000);
    expect(times.length).toBe(2);
  });

  test("at half of the ttl leaves time to repeat a renewal that goes unanswered", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, renewEveryMs: TTL_MS / 2 });
    const lease = scene.keep(await lock.acquire());
    let unanswered = 2;
    scene.faults = ({ verb }) =>
      verb === "renew" && unanswered-- > 0 ? { lose: "request", hang: true } : undefined;
    await scene.clock.advance(5 * TTL_MS);
    expect(lease.held).toBe(true);
    expect(unanswered).toBeLessThan(0);
  });

  test("is what a waiter's lease goes by once it is granted", async () => {
    const scene = new Scene();
    const holder = await scene.locks.mutex("k").acquire();
    const waiting = scene.locks.mutex("k", { ttlMs: TTL_MS, renewEveryMs: 200 }).acquire();
    await scene.clock.advance(500);
    await holder.release();
    scene.keep(await waiting);
    const times = renewalTimes(scene);
    await scene.clock.advance(1_000);
    expect(times.length).toBe(5);
  });

  test.each([0, -1, 1.5, Number.NaN, TTL_MS / 2 + 1, "1s", null])("refuses %s", (renewEveryMs) => {
    const { locks } = new Scene();
    expect(() => locks.mutex("k", { ttlMs: TTL_MS, renewEveryMs: renewEveryMs as number })).toThrow(
      refusal(/renewEveryMs must be a whole number from 1 to 1500, not/),
    );
  });

  test("is refused for a lease that does not renew itself", () => {
    const { locks } = new Scene();
    expect(() => locks.mutex("k", { renew: false, renewEveryMs: 1_000 })).toThrow(
      refusal(/renewEveryMs is for leases that renew themselves/),
    );
  });

  test("of one lock is not taken for that of the next", async () => {
    const scene = new Scene();
    scene.locks.mutex("k", { ttlMs: TTL_MS, renewEveryMs: 200 });
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(900);
    expect(scene.sent("renew")).toEqual([]);
  });
});

describe("a renewal that is paused", () => {
  async function held(scene: Scene, options: { renew?: boolean; reacquire?: boolean } = {}) {
    return scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, ...options }).acquire());
  }

  test("lets the lease end when its time is up, and the key is free then", async () => {
    const scene = new Scene();
    const lease = await held(scene);
    await scene.clock.advance(1_500);
    lease.pauseRenewal();
    const sent = scene.sent("renew").length;
    await scene.clock.advance(1_000 + PROVEN_MS - 1_500 - 1);
    expect(lease.held).toBe(true);
    await scene.clock.advance(1);
    expect(lease).toMatchObject({ held: false, lost: "expired" });
    expect(lease.signal.aborted).toBe(true);
    expect(scene.sent("renew").length).toBe(sent);
    await settled();
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("and resumed renews at once, and goes on as before", async () => {
    const scene = new Scene();
    const lease = await held(scene);
    lease.pauseRenewal();
    await scene.clock.advance(2_900);
    const times = renewalTimes(scene);
    lease.resumeRenewal();
    await scene.clock.advance(2_500);
    expect(times).toEqual([2_900, 3_900, 4_900]);
    await scene.clock.advance(5 * TTL_MS);
    expect(lease.held).toBe(true);
  });

  test("stops also the repetition of what is unanswered, and an outage is then not why the lease ends", async () => {
    const scene = new Scene();
    const lease = await held(scene);
    scene.refuseCalls();
    await scene.clock.advance(1_100);
    lease.pauseRenewal();
    const sent = scene.sent("renew").length;
    expect(sent).toBeGreaterThan(0);
    await scene.clock.advance(TTL_MS);
    expect(scene.sent("renew").length).toBe(sent);
    expect(lease.lost).toBe("expired");
    expect((lease.signal.reason as HoldfastError).cause).toBeUndefined();
  });

  test("takes the answer to a renewal that was under way as proof", async () => {
    const scene = new Scene();
    const lease = await held(scene);
    scene.faults = ({ verb }) => (verb === "renew" ? { afterMs: 400 } : undefined);
    // (1) The renewal is sent. (2) Renewal is paused. (3) The answer comes.
    await scene.clock.advance(1_100);
    lease.pauseRenewal();
    await scene.clock.advance(1_000);
    expect(lease.expiresInMs).toBe(1_000 + PROVEN_MS - 2_100);
    await scene.clock.advance(lease.expiresInMs);
    expect(lease.held).toBe(false);
    expect(scene.sent("renew")).toHaveLength(1);
  });

  test("can be extended all the same, and is not renewed by that", async () => {
    const scene = new Scene();
    const lease = await held(scene);
    lease.pauseRenewal();
    await lease.extend(10_000);
    await scene.clock.advance(9_000);
    expect(lease.held).toBe(true);
    expect(scene.sent("renew")).toHaveLength(1);
    await scene.clock.advance(1_000);
    expect(lease.held).toBe(false);
  });

  test("is not won again, unless it was resumed", async () => {
    const scene = new Scene();
    const lease = await held(scene, { reacquire: true });
    lease.pauseRenewal();
    await scene.clock.advance(2 * TTL_MS);
    expect(lease).toMatchObject({ held: false, lost: "expired" });
    expect(lease.signal.aborted).toBe(true);
    const other = await held(scene, { reacquire: true });
    other.pauseRenewal();
    other.resumeRenewal();
    const { fence } = other;
    await scene.locks.forceRelease("k", other.id);
    await scene.clock.advance(TTL_MS);
    expect(other.held).toBe(true);
    expect(other.fence > fence).toBe(true);
    // It follows the lease as it is now.
    other.pauseRenewal();
    await scene.clock.advance(TTL_MS);
    expect(other.lost).toBe("expired");
  });

  test("can be started on a lease that was taken without", async () => {
    const scene = new Scene();
    const lease = await held(scene, { renew: false });
    lease.resumeRenewal();
    await scene.clock.advance(5 * TTL_MS);
    expect(lease.held).toBe(true);
    lease.pauseRenewal();
    await scene.clock.advance(TTL_MS);
    expect(lease.held).toBe(false);
  });

  test("started on a lease that was taken without does not keep it from being won again", async () => {
    const scene = new Scene();
    const lease = await held(scene, { renew: false, reacquire: true });
    lease.resumeRenewal();
    await scene.locks.forceRelease("k", lease.id);
    await scene.clock.advance(TTL_MS);
    expect(lease.held).toBe(true);
  });

  test("is nothing to a lease that is over, and cannot be resumed there", async () => {
    const scene = new Scene();
    const released = await held(scene);
    await released.release();
    released.pauseRenewal();
    expect(() => released.resumeRenewal()).toThrow(expect.objectContaining({ code: "NOT_HELD" }));
    const lost = await held(scene);
    lost.pauseRenewal();
    // The loss is found at the very call: a lease whose time is up is not brought back.
    scene.clock.block(PROVEN_MS);
    expect(() => lost.resumeRenewal()).toThrow(expect.objectContaining({ code: "LEASE_LOST" }));
  });

  test("of a shared lease is that of all who share it", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, reentrant: true });
    await lock.run(async (outer) => {
      const inner = await lock.acquire();
      inner.pauseRenewal();
      await scene.clock.advance(1_500);
      expect(scene.sent("renew")).toEqual([]);
      await inner.release();
      inner.pauseRenewal();
      expect(() => inner.resumeRenewal()).toThrow(expect.objectContaining({ code: "NOT_HELD" }));
      outer.resumeRenewal();
      await scene.clock.advance(2 * TTL_MS);
      expect(outer.held).toBe(true);
    });
  });
});
