import { LeaseLostError } from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

/** Longer than any block in these tests. */
const LONG_MS = 60_000;

/** A lease that is told lost into `events`, before whatever else a test adds to them. */
async function sceneWithLease() {
  const scene = new Scene();
  const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
  const events: string[] = [];
  lease.signal.addEventListener("abort", () => events.push("lost"));
  return { scene, lease, events };
}

describe("blocked process", () => {
  test("held is false at once after a block past the deadline, before anything else has run", async () => {
    const { scene, lease, events } = await sceneWithLease();
    scene.clock.block(TTL_MS);
    expect(lease.held).toBe(false);
    expect(events).toEqual(["lost"]);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    await scene.clock.advance(LONG_MS);
    expect(lease.held).toBe(false);
  });

  test("a pause of the process is no outage, so the loss names no cause", async () => {
    const { scene, lease } = await sceneWithLease();
    scene.clock.block(TTL_MS);
    expect(lease.state).toMatchObject({ held: false, lost: "expired" });
    expect(lease.signal.reason.cause).toBeUndefined();
  });

  test("a block that ends before the deadline costs nothing, and the heartbeat is made up for", async () => {
    const { scene, lease } = await sceneWithLease();
    scene.clock.block(2_900);
    await scene.clock.advance(0);
    expect(scene.sent("renew")).toHaveLength(1);
    await scene.clock.advance(1_000);
    expect(lease.held).toBe(true);
  });

  test("a loss is told before another acquire resolves whose answer is already there", async () => {
    const { scene, events } = await sceneWithLease();
    void scene.locks
      .mutex("other", { ttlMs: LONG_MS })
      .acquire()
      .then(() => events.push("acquired"));
    scene.clock.block(TTL_MS);
    await scene.clock.advance(0);
    expect(events).toEqual(["lost", "acquired"]);
  });

  test("a loss is told before a release is confirmed whose answer is already there", async () => {
    const { scene, events } = await sceneWithLease();
    const other = await scene.locks.mutex("other").acquire();
    void other.release().then(() => events.push("released"));
    scene.clock.block(TTL_MS);
    await scene.clock.advance(0);
    expect(events).toEqual(["lost", "released"]);
  });

  test("a loss is told before a failure is, and before it is acted upon", async () => {
    const { scene, events } = await sceneWithLease();
    scene.faults = ({ verb }) => (verb === "acquire" ? { error: new Error("disk full") } : undefined);
    void scene.locks
      .mutex("other")
      .acquire()
      .catch(() => events.push("failed"));
    scene.clock.block(TTL_MS);
    await scene.clock.advance(0);
    expect(events).toEqual(["lost", "failed"]);
  });

  test("a loss is told before a pushed grant is acted upon", async () => {
    const { scene, lease, events } = await sceneWithLease();
    const holder = await scene.rival().mutex("other").acquire();
    const waiting = scene.begin(scene.locks.mutex("other", { ttlMs: LONG_MS }).acquire());
    await scene.clock.advance(0);
    let renewalsAtLoss: number | undefined;
    lease.signal.addEventListener("abort", () => {
      renewalsAtLoss = scene.sent("renew").length;
    });
    // The push is on its way when the process stops.
    scene.begin(holder.release());
    scene.clock.block(TTL_MS);
    await scene.clock.advance(0);
    expect(scene.sent("push")).toHaveLength(1);
    expect(events).toEqual(["lost"]);
    expect(renewalsAtLoss).toBe(0);
    expect(waiting.value?.held).toBe(true);
  });

  test("an answer that would have proven the lease is too late when it is read after the deadline", async () => {
    const { scene, lease, events } = await sceneWithLease();
    const extending = scene.begin(lease.extend(LONG_MS));
    scene.clock.block(TTL_MS);
    await scene.clock.advance(0);
    expect(events).toEqual(["lost"]);
    expect(extending).toMatchObject({ state: "rejected", error: { code: "LEASE_LOST" } });
    expect(lease.held).toBe(false);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("a grant that is read after its time is up is asked for again, not handed out", async () => {
    const scene = new Scene();
    const acquiring = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    scene.clock.block(TTL_MS);
    await scene.clock.advance(0);
    expect(scene.sent("acquire")).toHaveLength(2);
    expect(acquiring.value?.held).toBe(true);
    expect(acquiring.value?.fence).toBe((await scene.status("k")).fence);
  });
});
