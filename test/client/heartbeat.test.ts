import { HoldfastError, type Lease, LeaseLostError } from "holdfast";
import { describe, expect, test } from "vitest";
import { PROVEN_MS, Scene, TTL_MS } from "./scene.ts";

/** Fails unless the lease is lost at that moment and not a millisecond before. */
async function expectLostAt(scene: Scene, lease: Lease, atMs: number): Promise<void> {
  await scene.clock.advance(atMs - 1 - scene.nowMs);
  expect(lease.held).toBe(true);
  await scene.clock.advance(1);
  expect(lease.held).toBe(false);
}

async function acquireMany(scene: Scene, count: number): Promise<Lease[]> {
  const locks = Array.from({ length: count }, (_, index) =>
    scene.locks.mutex(`k${index}`, { ttlMs: TTL_MS }),
  );
  return scene.keep(await Promise.all(locks.map((lock) => lock.acquire())));
}

describe("heartbeat: when it is sent", () => {
  test("a lease is renewed at each third of its ttl", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.clock.advance(999);
    expect(scene.sent("renew")).toEqual([]);
    await scene.clock.advance(1);
    expect(scene.sent("renew").map(({ args }) => args[0])).toMatchObject([[{ key: "k", id: lease.id }]]);
    await scene.clock.advance(2_000);
    expect(scene.sent("renew")).toHaveLength(3);
    expect(lease.held).toBe(true);
  });

  test("it stops with the release, and leaves no timer", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.clock.advance(1_500);
    await lease.release();
    await scene.clock.advance(60_000);
    expect(scene.sent("renew")).toHaveLength(1);
    expect(scene.clock.pendingTimers).toBe(0);
  });

  test("a thousand leases cost one call a period, and one timer", async () => {
    const scene = new Scene();
    await acquireMany(scene, 1_000);
    expect(scene.clock.pendingTimers).toBe(1);
    await scene.clock.advance(3_000);
    expect(scene.sent("renew").map(({ args }) => args[0].length)).toEqual([1_000, 1_000, 1_000]);
    expect(scene.clock.pendingTimers).toBe(1);
  });

  test("no call carries more than a thousand leases", async () => {
    const scene = new Scene();
    await acquireMany(scene, 2_500);
    await scene.clock.advance(1_000);
    expect(scene.sent("renew").map(({ args }) => args[0].length)).toEqual([1_000, 1_000, 500]);
    const renewed = scene.sent("renew").flatMap(({ args }) => args[0].map(({ key }) => key));
    expect(new Set(renewed).size).toBe(2_500);
  });

  test("leases that are due about now travel together, and go on together", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("a", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(20);
    scene.keep(await scene.locks.mutex("b", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(30);
    scene.keep(await scene.locks.mutex("later", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(1_975);
    const keys = scene.sent("renew").map(({ args }) => args[0].map(({ key }) => key).sort());
    expect(keys).toEqual([["a", "b"], ["later"], ["a", "b"]]);
  });

  test("waiting claims and leases share a call", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("busy").acquire());
    scene.keep(await scene.locks.mutex("mine", { ttlMs: TTL_MS }).acquire());
    scene.begin(scene.locks.mutex("busy", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(1_000);
    // They are due at the same moment, so in either order.
    const keys = scene.sent("renew").map(({ args }) => args[0].map(({ key }) => key).sort());
    expect(keys).toEqual([["busy", "mine"]]);
  });
});

describe("heartbeat: when the store is in trouble", () => {
  test("a heartbeat that fails is repeated until one gets through", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.refuseCalls();
    await scene.clock.advance(2_500);
    expect(scene.sent("renew").length).toBeGreaterThan(3);
    scene.reconnect();
    await scene.clock.advance(10_000);
    expect(lease.held).toBe(true);
    expect(scene.locks.stats().lost).toBe(0);
  });

  test("a heartbeat that is never answered is sent again, and the later answer counts", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const bystander = await scene.locks.mutex("other", { ttlMs: 30_000 }).acquire();
    scene.faults = ({ verb, count }) =>
      verb === "renew" && count === 1 ? { lose: "request", hang: true } : undefined;
    await scene.clock.advance(1_499);
    expect(scene.sent("renew")).toHaveLength(1);
    await scene.clock.advance(1);
    expect(scene.sent("renew")).toHaveLength(2);
    // Had the first one frozen anything, these would be over.
    await scene.clock.advance(60_000);
    expect([lease.held, bystander.held]).toEqual([true, true]);
  });

  test("a late answer still proves the lease, from the moment its request was sent", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.faults = ({ verb, count }) =>
      verb === "renew" && count === 1 ? { afterMs: 1_500 } : { lose: "request", hang: true };
    await expectLostAt(scene, lease, 1_000 + PROVEN_MS);
  });

  test("answers may overtake each other, and the better proof counts", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    // Sent at 1,000 and answered at 2,500; sent at 1,500 and answered at once; then silence.
    scene.faults = ({ verb, count }) => {
      if (verb === "renew" && count === 1) return { afterMs: 1_500 };
      return verb === "renew" && count === 2 ? undefined : { lose: "request", hang: true };
    };
    await expectLostAt(scene, lease, 1_500 + PROVEN_MS);
  });

  test("a slow acquire is held until its ttl after it was sent, however late the answer came", async () => {
    const scene = new Scene();
    scene.faults = ({ verb, count }) =>
      verb === "acquire" && count === 1 ? { afterMs: 2_000 } : { lose: "request", hang: true };
    const acquiring = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(2_000);
    expect(acquiring.value?.held).toBe(true);
    await expectLostAt(scene, acquiring.value!, PROVEN_MS);
  });

  test("a lease is lost at its deadline when the store is silent, and the cause says so", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const { signal } = lease;
    scene.cutOff();
    await scene.clock.advance(PROVEN_MS - 1);
    expect(signal.aborted).toBe(false);
    await scene.clock.advance(1);
    expect(signal.reason).toBeInstanceOf(LeaseLostError);
    expect(signal.reason).toMatchObject({
      reason: "expired",
      key: "k",
      cause: { code: "STORE_UNAVAILABLE" },
    });
  });

  test("the cause of a loss is what the last heartbeat failed with", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const cause = new HoldfastError("UNAUTHORIZED", "The password was changed.");
    scene.faults = () => ({ error: cause });
    await scene.clock.advance(TTL_MS);
    expect(lease.signal.reason).toMatchObject({ reason: "expired", cause });
  });

  test("an answer that comes after the deadline does not revive the lease", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.faults = ({ verb }) => (verb === "renew" ? { afterMs: 2_500 } : { lose: "request", hang: true });
    await expectLostAt(scene, lease, PROVEN_MS);
    await scene.clock.advance(500);
    expect((await scene.status("k")).heldCount).toBe(1);
    await scene.clock.advance(60_000);
    expect(lease.held).toBe(false);
    expect(lease.signal.aborted).toBe(true);
  });

  test("what the deadline took is also given back to the store", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.faults = ({ verb }) => (verb === "renew" ? { lose: "reply" } : undefined);
    await expectLostAt(scene, lease, PROVEN_MS);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("thousands that are lost at once are given back a thousand at a time", async () => {
    const scene = new Scene();
    await acquireMany(scene, 2_500);
    scene.faults = ({ verb }) => (verb === "renew" ? { lose: "request" } : undefined);
    await scene.clock.advance(TTL_MS);
    expect(scene.sent("release").map(({ args }) => args[0].length)).toEqual([1_000, 1_000, 500]);
  });

  test("a store that leaves one heartbeat of many unanswered costs the others nothing", async () => {
    const scene = new Scene();
    const [first, second] = await acquireMany(scene, 2);
    const { backend } = scene;
    const renew = backend.renew.bind(backend);
    backend.renew = async (refs) => (await renew(refs)).slice(0, 1);
    await scene.clock.advance(TTL_MS);
    expect([first?.held, second?.held]).toEqual([true, true]);
  });

  // (1) Both go out in one call. (2) The server of the second one hangs, and with it the answer to both. (3) The next time each goes by itself.
  test("what the store keeps silent about costs the others nothing", async () => {
    const scene = new Scene();
    const [first, second] = await acquireMany(scene, 2);
    scene.faults = (call) =>
      call.verb === "renew" && call.args[0].some(({ key }) => key === second?.key)
        ? { lose: "reply", hang: true }
        : undefined;
    await scene.clock.advance(TTL_MS);
    expect([first?.held, second?.held]).toEqual([true, false]);
    await scene.clock.advance(10 * TTL_MS);
    expect(first?.held).toBe(true);
  });

  // (1) A call for both fails at once. (2) They go out together again, and the server of the second one hangs.
  test("what the store keeps silent about costs the others nothing, also after a failure", async () => {
    const scene = new Scene();
    const [first, second] = await acquireMany(scene, 2);
    scene.faults = (call) => {
      if (call.verb !== "renew") return undefined;
      if (call.count === 1) return { lose: "request" };
      return call.args[0].some(({ key }) => key === second?.key) ? { lose: "reply", hang: true } : undefined;
    };
    await scene.clock.advance(TTL_MS);
    expect([first?.held, second?.held]).toEqual([true, false]);
  });

  test("clockDrift brings the deadline forward", async () => {
    const scene = new Scene({ clockDrift: 0.1 });
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    await expectLostAt(scene, lease, 2_699);
  });
});
