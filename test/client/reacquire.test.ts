import type { LeaseState } from "holdfast";
import { describe, expect, test } from "vitest";
import { PROVEN_MS, Scene, TTL_MS } from "./scene.ts";

async function sceneWithLeader(options: { maxHoldMs?: number; id?: string } = {}) {
  const scene = new Scene();
  const { id, ...lockOptions } = options;
  const lock = scene.locks.mutex("leader", { ttlMs: TTL_MS, reacquire: true, ...lockOptions });
  const lease = await lock.acquire(id === undefined ? {} : { id });
  const first = { id: lease.id, fence: lease.fence };
  return { scene, lease, first, signal: lease.signal };
}

/** The leader after somebody took the lock away from it and kept it. */
async function sceneWithDeposedLeader() {
  const { scene, lease, first, signal } = await sceneWithLeader();
  const rival = scene.rival();
  await rival.forceRelease("leader", lease.id);
  const successor = await rival.mutex("leader").acquire();
  await scene.clock.advance(1_000);
  expect(lease.state).toMatchObject({ held: false, lost: "gone" });
  return { scene, lease, first, signal, successor };
}

describe("reacquire", () => {
  test("a lease that is gone is won again with another id and a higher fence", async () => {
    const { scene, lease, first, signal } = await sceneWithLeader();
    await scene.rival().forceRelease("leader", lease.id);
    await scene.clock.advance(1_000);
    expect(lease.held).toBe(true);
    expect(lease.id).not.toBe(first.id);
    expect(lease.fence).toBeGreaterThan(first.fence);
    expect(signal.aborted).toBe(false);
    const [claim] = (await scene.status("leader")).held;
    expect([claim?.id, claim?.fence]).toEqual([lease.id, lease.fence]);
  });

  test("a lease that expired in an outage is won again when that is over, however long it was", async () => {
    const { scene, lease, first, signal } = await sceneWithLeader();
    scene.cutOff();
    await scene.clock.advance(PROVEN_MS);
    expect(lease.state).toMatchObject({ held: false, lost: "expired" });
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ code: "LEASE_LOST" }));
    await scene.clock.advance(3_600_000);
    scene.reconnect();
    await scene.clock.advance(1_000);
    expect(lease.state).toMatchObject({ held: true, lost: undefined });
    expect(lease.fence).toBeGreaterThan(first.fence);
    expect(signal.aborted).toBe(false);
    expect((await scene.status("leader")).heldCount).toBe(1);
  });

  test("watch tells the loss and the win", async () => {
    const { scene, lease, first, successor } = await sceneWithDeposedLeader();
    const states: LeaseState[] = [];
    const watching = (async () => {
      for await (const state of lease.watch()) states.push(state);
    })();
    await successor.release();
    await scene.clock.advance(0);
    await lease.release();
    await watching;
    const told = states.map(({ held, lost, released }) => ({ held, lost, released }));
    expect(told).toEqual([
      { held: false, lost: "gone", released: false },
      { held: true, lost: undefined, released: false },
      { held: false, lost: undefined, released: true },
    ]);
    expect(states[1]!.fence).toBeGreaterThan(first.fence);
  });

  test("it waits for its turn while somebody else has the lock", async () => {
    const { scene, lease, successor } = await sceneWithDeposedLeader();
    await scene.clock.advance(60_000);
    expect([lease.held, successor.held]).toEqual([false, true]);
    await successor.release();
    await scene.clock.advance(0);
    expect(lease.held).toBe(true);
    expect(lease.fence).toBeGreaterThan(successor.fence);
  });

  test("heartbeats follow the new id", async () => {
    const { scene, lease } = await sceneWithLeader();
    await scene.rival().forceRelease("leader", lease.id);
    await scene.clock.advance(10_000);
    expect(scene.sent("renew").at(-1)?.args[0]).toMatchObject([{ id: lease.id }]);
    expect(lease.held).toBe(true);
  });

  // E12
  test("releasing while it waits to win again stops that, and leaves no claim", async () => {
    const { scene, lease, signal, successor } = await sceneWithDeposedLeader();
    expect((await scene.status("leader")).waitingCount).toBe(1);
    expect(await lease.release()).toBe(false);
    expect((await scene.status("leader")).waitingCount).toBe(0);
    await successor.release();
    await scene.clock.advance(60_000);
    expect((await scene.status("leader")).heldCount).toBe(0);
    expect(lease.state).toMatchObject({ held: false, released: true });
    expect(signal.aborted).toBe(false);
  });

  // E12
  test("releasing while it asks again gives back what the store grants too late", async () => {
    const { scene, lease } = await sceneWithLeader();
    await scene.rival().forceRelease("leader", lease.id);
    scene.faults = ({ verb }) => (verb === "acquire" ? { beforeMs: 200 } : undefined);
    await scene.clock.advance(1_000);
    expect(await lease.release()).toBe(false);
    await scene.clock.advance(200);
    expect((await scene.status("leader")).heldCount).toBe(0);
    await scene.clock.advance(60_000);
    expect(scene.sent("acquire").length).toBe(2);
  });

  test("closing the client while it wins again aborts the signal, and leaves no claim", async () => {
    const { scene, signal, successor } = await sceneWithDeposedLeader();
    await scene.locks.close();
    expect(signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "closed" });
    expect((await scene.status("leader")).waitingCount).toBe(0);
    await successor.release();
    expect((await scene.status("leader")).heldCount).toBe(0);
  });

  test("maxHoldMs ends it for good, counted from the first grant", async () => {
    const { scene, lease, signal } = await sceneWithLeader({ maxHoldMs: 10_000 });
    await scene.clock.advance(5_000);
    await scene.rival().forceRelease("leader", lease.id);
    await scene.clock.advance(4_999);
    expect(lease.held).toBe(true);
    await scene.clock.advance(1);
    expect(signal.reason).toMatchObject({ reason: "max-hold" });
    await scene.clock.advance(60_000);
    expect((await scene.status("leader")).heldCount).toBe(0);
  });

  test("maxHoldMs also ends it while it waits to be won again", async () => {
    const { scene, lease, signal } = await sceneWithLeader({ maxHoldMs: 10_000 });
    await scene.rival().forceRelease("leader", lease.id);
    scene.keep(await scene.rival().mutex("leader").acquire());
    await scene.clock.advance(9_999);
    expect((await scene.status("leader")).waitingCount).toBe(1);
    expect(signal.aborted).toBe(false);
    await scene.clock.advance(1);
    expect(signal.reason).toMatchObject({ reason: "max-hold" });
    expect((await scene.status("leader")).waitingCount).toBe(0);
    expect(scene.locks.stats()).toMatchObject({ held: 0, waiting: 0, lost: 1 });
  });

  test("an id of the caller's stands for the first attempt alone", async () => {
    const { scene, lease } = await sceneWithLeader({ id: "job-1" });
    await scene.rival().forceRelease("leader", "job-1");
    await scene.clock.advance(1_000);
    expect(lease.id).not.toBe("job-1");
    const again = scene.begin(scene.locks.mutex("leader").acquire({ id: "job-1" }));
    await lease.release();
    await scene.clock.advance(0);
    expect(again.value?.id).toBe("job-1");
  });

  test("a lease that another call took over is not won back", async () => {
    const { scene, lease, signal } = await sceneWithLeader({ id: "job-1" });
    const taker = await scene.rival().mutex("leader").acquire({ id: "job-1" });
    await scene.clock.advance(60_000);
    expect([lease.held, taker.held]).toEqual([false, true]);
    expect(signal.reason).toMatchObject({ reason: "taken-over" });
    expect((await scene.status("leader")).waitingCount).toBe(0);
  });
});
