import { AcquireTimeoutError, HoldfastError, StoreUnavailableError } from "holdfast";
import { describe, expect, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { Scene, TTL_MS } from "./scene.ts";

/** A key "k" that a rival holds, and a client that waits for it. */
async function sceneWithWaiter({ ttlMs = TTL_MS, waitMs = Number.POSITIVE_INFINITY } = {}) {
  const scene = new Scene();
  const holder = await scene.rival().mutex("k", { ttlMs: 60_000 }).acquire();
  const controller = new AbortController();
  const { signal } = controller;
  const waiting = scene.begin(scene.locks.mutex("k", { ttlMs }).acquire({ waitMs, signal }));
  await scene.clock.advance(0);
  return { scene, holder, waiting, controller };
}

describe("waiting: being served", () => {
  test("a grant is pushed and handed out", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    await scene.clock.advance(500);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting).toMatchObject({ state: "fulfilled", atMs: 500 });
    expect(waiting.value?.held).toBe(true);
    expect([scene.sent("acquire").length, scene.sent("renew").length]).toEqual([1, 0]);
  });

  test("a push that is lost costs no more than the time to the next heartbeat", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    scene.faults = ({ verb }) => (verb === "push" ? { lose: "request" } : undefined);
    await scene.clock.advance(100);
    await holder.release();
    await scene.clock.advance(899);
    expect(waiting.state).toBe("pending");
    await scene.clock.advance(1);
    expect(waiting.value?.held).toBe(true);
  });

  test("a push that overtakes the answer which says waiting is not lost", async () => {
    const scene = new Scene();
    const holder = await scene.rival().mutex("k").acquire();
    scene.faults = ({ verb }) => (verb === "acquire" ? { afterMs: 50 } : undefined);
    const waiting = scene.begin(scene.locks.mutex("k", { ttlMs: 60_000 }).acquire());
    await scene.clock.advance(10);
    await holder.release();
    await scene.clock.advance(40);
    expect(scene.sent("push")).toHaveLength(1);
    expect(waiting).toMatchObject({ state: "fulfilled", atMs: 50 });
  });

  test("a push for nobody, or a false one, changes nothing", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    const push = scene.backend.onGrant.bind(scene.backend);
    let tell: Parameters<typeof push>[1] = () => {};
    scene.backend.onGrant = (owner, listener) => {
      tell = listener;
      return push(owner, listener);
    };
    const other = scene.rival();
    const second = scene.begin(other.mutex("k").acquire());
    await scene.clock.advance(0);
    const [, waiter] = (await scene.status("k")).waiting;
    tell([
      { key: "k", id: "nobody" },
      { key: "k", id: waiter!.id },
    ]);
    await scene.clock.advance(0);
    expect([waiting.state, second.state, holder.held]).toEqual(["pending", "pending", true]);
  });

  test("a dead holder's key goes to the head right after its expiry, without polling for it", async () => {
    const scene = new Scene();
    await scene.backend.acquire(claimRequest("dead", { ttlMs: 10_000 }));
    const first = scene.begin(scene.locks.mutex("k", { ttlMs: 60_000 }).acquire());
    await scene.clock.advance(0);
    const second = scene.begin(scene.locks.mutex("k", { ttlMs: 60_000 }).acquire());
    await scene.clock.advance(9_999);
    expect(scene.calls.map(({ verb }) => verb)).toEqual(["acquire", "acquire"]);
    await scene.clock.advance(2);
    expect([first.atMs, second.state]).toEqual([10_001, "pending"]);
    // The one at the head asked, and the one behind it left that to it.
    expect(scene.sent("renew").map(({ args }) => args[0].length)).toEqual([1]);
  });

  test("waiting for long costs a heartbeat a third of the ttl, and one request at the end", async () => {
    const scene = new Scene();
    await scene.backend.acquire(claimRequest("dead", { ttlMs: 10_000 }));
    const waiting = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(10_100);
    expect(waiting.value?.held).toBe(true);
    expect(scene.sent("renew").length).toBeLessThanOrEqual(10 + 1);
    expect(scene.sent("acquire")).toHaveLength(1);
  });

  test("a thousand waiters tell that they wait in one call, on one timer", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    for (let count = 0; count < 1_000; count++) {
      scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    }
    await scene.clock.advance(1_000);
    expect(scene.sent("renew").map(({ args }) => args[0].length)).toEqual([1_000]);
    expect(scene.locks.stats().waiting).toBe(1_000);
  });
});

describe("waiting: giving up", () => {
  test("a wait that runs out is told when the store has confirmed that the claim is gone", async () => {
    const { scene, waiting } = await sceneWithWaiter({ waitMs: 500 });
    scene.faults = ({ verb }) => (verb === "release" ? { beforeMs: 300 } : undefined);
    await scene.clock.advance(500);
    expect(waiting.state).toBe("pending");
    await scene.clock.advance(300);
    expect(waiting).toMatchObject({ state: "rejected", atMs: 800 });
    expect(waiting.error).toBeInstanceOf(AcquireTimeoutError);
    expect((await scene.status("k")).waitingCount).toBe(0);
    expect(scene.locks.stats().waiting).toBe(0);
  });

  test("a cancelled wait is told when the store has confirmed that the claim is gone", async () => {
    const { scene, waiting, controller } = await sceneWithWaiter();
    const reason = new Error("no longer wanted");
    scene.faults = ({ verb }) => (verb === "release" ? { beforeMs: 300 } : undefined);
    controller.abort(reason);
    await scene.clock.advance(299);
    expect(waiting.state).toBe("pending");
    await scene.clock.advance(1);
    expect(waiting).toMatchObject({ state: "rejected", error: reason });
    expect((await scene.status("k")).waitingCount).toBe(0);
  });

  test("so it is when the signal that cancels it is that of a lost lease", async () => {
    const { scene, waiting, controller } = await sceneWithWaiter();
    const other = await scene.locks.mutex("other", { ttlMs: TTL_MS, renew: false }).acquire();
    other.signal.addEventListener("abort", () => controller.abort(other.signal.reason));
    scene.faults = ({ verb }) => (verb === "release" ? { beforeMs: 300 } : undefined);
    await scene.clock.advance(TTL_MS);
    expect(waiting.state).toBe("pending");
    await scene.clock.advance(300);
    expect(waiting).toMatchObject({ state: "rejected", error: { code: "LEASE_LOST" } });
    expect((await scene.status("k")).waitingCount).toBe(0);
  });

  test.each([
    ["a wait that runs out", { waitMs: 500 }, "ACQUIRE_TIMEOUT"],
    ["a cancelled wait", {}, "CLOSED"],
  ])("%s is held up by a silent store for a second at most", async (_, options, code) => {
    const { scene, waiting, controller } = await sceneWithWaiter(options);
    scene.cutOff();
    await scene.clock.advance(500);
    controller.abort(new HoldfastError("CLOSED", "The program ends."));
    await scene.clock.advance(999);
    expect(waiting.state).toBe("pending");
    await scene.clock.advance(1);
    expect(waiting).toMatchObject({ state: "rejected", atMs: 1_500, error: { code } });
  });

  test("a wait runs out on time also when the store never said that it began: as an outage", async () => {
    const scene = new Scene();
    scene.cutOff();
    const waiting = scene.begin(scene.locks.mutex("k").acquire({ waitMs: 500 }));
    await scene.clock.advance(500);
    expect(waiting.error).toBeInstanceOf(StoreUnavailableError);
  });

  test("what is granted while its claim leaves goes to the next one", async () => {
    const { scene, holder, waiting, controller } = await sceneWithWaiter();
    const next = scene.begin(scene.rival().mutex("k").acquire());
    scene.faults = ({ verb }) => (verb === "release" ? { beforeMs: 100 } : undefined);
    controller.abort();
    await holder.release();
    await scene.clock.advance(100);
    expect(waiting.state).toBe("rejected");
    expect(next.value?.held).toBe(true);
  });

  test("a signal has no say once the lock is held", async () => {
    const { scene, holder, waiting, controller } = await sceneWithWaiter();
    await holder.release();
    await scene.clock.advance(0);
    controller.abort();
    await scene.clock.advance(60_000);
    expect(waiting.value?.held).toBe(true);
  });

  test("a cancelled try that was granted after all gives it back", async () => {
    const scene = new Scene();
    const controller = new AbortController();
    scene.faults = ({ verb }) => (verb === "acquire" ? { beforeMs: 100 } : undefined);
    const trying = scene.begin(scene.locks.mutex("k").tryAcquire({ signal: controller.signal }));
    await scene.clock.advance(50);
    controller.abort();
    await scene.clock.advance(0);
    expect(trying.state).toBe("rejected");
    await scene.clock.advance(50);
    expect(scene.sent("release")).toHaveLength(2);
    expect((await scene.status("k")).heldCount).toBe(0);
  });
});

describe("waiting: in trouble", () => {
  test("a waiter whose queue the store has forgotten joins again by itself", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    const [waiter] = (await scene.status("k")).waiting;
    await scene.backend.release([{ key: "k", id: waiter!.id }]);
    await scene.clock.advance(1_000);
    expect((await scene.status("k")).waiting.map(({ id }) => id)).toEqual([waiter!.id]);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting.value?.id).toBe(waiter!.id);
  });

  test("an old answer that the claim is gone says nothing of the one that joined again", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    const [waiter] = (await scene.status("k")).waiting;
    await scene.backend.release([{ key: "k", id: waiter!.id }]);
    // Both heartbeats say that it is gone. The first one, sent at 1,000, is heard of at 1,900.
    scene.faults = ({ verb, count }) => (verb === "renew" && count === 1 ? { afterMs: 900 } : undefined);
    await scene.clock.advance(1_600);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting.value?.held).toBe(true);
    await scene.clock.advance(300);
    expect(waiting.value?.held).toBe(true);
  });

  test("a waiter that was paused past its ttl joins again, and takes its pause for no outage", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    await scene.clock.advance(500);
    scene.clock.block(10_000);
    await scene.clock.advance(0);
    expect(waiting.state).toBe("pending");
    expect((await scene.status("k")).waitingCount).toBe(1);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting.value?.held).toBe(true);
  });

  test("a pause while a heartbeat is on its way is no outage either", async () => {
    const { scene, waiting } = await sceneWithWaiter();
    scene.faults = ({ verb, count }) =>
      verb === "renew" && count === 1 ? { lose: "reply", hang: true } : undefined;
    await scene.clock.advance(1_100);
    scene.clock.block(20_000);
    await scene.clock.advance(0);
    expect(waiting.state).toBe("pending");
    expect((await scene.status("k")).waitingCount).toBe(1);
  });

  test.each([
    ["fails", true],
    ["is silent", false],
  ])("a waiter gives up when the store %s for a whole ttl", async (_, fails) => {
    const { scene, waiting } = await sceneWithWaiter();
    if (fails) scene.refuseCalls();
    else scene.cutOff();
    await scene.clock.advance(1_000 + TTL_MS - 1);
    expect(waiting.state).toBe("pending");
    await scene.clock.advance(1);
    expect(waiting).toMatchObject({ state: "rejected", error: { code: "STORE_UNAVAILABLE", key: "k" } });
    expect(waiting.error).toHaveProperty("message", expect.stringContaining(`(ttlMs ${TTL_MS})`));
  });

  test("a waiter gets through an outage that is shorter than its ttl", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    scene.cutOff();
    await scene.clock.advance(3_400);
    scene.reconnect();
    await scene.clock.advance(100);
    expect((await scene.status("k")).waitingCount).toBe(1);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting.value?.held).toBe(true);
  });
});
