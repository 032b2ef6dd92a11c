/** Grants that are pushed with their fence: believed without asking where that is safe, and only there. */
import { createLocks, memoryStore } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { describe, expect, test, vi } from "vitest";
import { PROVEN_MS, Scene, TTL_MS } from "./scene.ts";

/** A key "k" that a rival holds, and a client that waits for it. */
async function sceneWithWaiter() {
  const scene = new Scene();
  const rival = scene.rival();
  const holder = await rival.mutex("k", { ttlMs: 60_000 }).acquire();
  const waiting = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
  await scene.clock.advance(0);
  return { scene, rival, holder, waiting };
}

describe("pushed grants", () => {
  test("one that names its fence is held at once, without a word to the store", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    await scene.clock.advance(500);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting).toMatchObject({ state: "fulfilled", atMs: 500 });
    expect(waiting.value?.fence).toBe((await scene.status("k")).held[0]?.fence);
    expect(scene.sent("renew")).toEqual([]);
  });

  test("its lease is proven by the heartbeat of the waiter, and goes on from there", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    await scene.clock.advance(500);
    await holder.release();
    await scene.clock.advance(0);
    const lease = waiting.value!;
    expect(lease.expiresAtMs - scene.clock.wallMs()).toBe(PROVEN_MS - 500);
    await scene.clock.advance(500);
    expect(scene.sent("renew")).toHaveLength(1);
    expect(lease.expiresAtMs - scene.clock.wallMs()).toBe(PROVEN_MS);
  });

  test("its lease ends with the life of the claim when no heartbeat gets through", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    await scene.clock.advance(500);
    await holder.release();
    await scene.clock.advance(0);
    scene.cutOff();
    await scene.clock.advance(PROVEN_MS - 501);
    expect(waiting.value?.held).toBe(true);
    await scene.clock.advance(1);
    expect(waiting.value?.held).toBe(false);
  });

  test("one that names no fence is proven by one heartbeat", async () => {
    const clock = new ManualClock();
    const backend = memoryStore({ clock });
    const renew = vi.spyOn(backend, "renew");
    const listen = backend.onGrant.bind(backend);
    backend.onGrant = (owner, listener) =>
      listen(owner, (refs) => listener(refs.map(({ key, id }) => ({ key, id }))));
    const locks = createLocks(backend, { clock });
    const holder = await locks.mutex("k").acquire();
    const waiting = locks.mutex("k").acquire();
    await clock.advance(0);
    await holder.release();
    await clock.advance(0);
    expect((await waiting).held).toBe(true);
    expect(renew).toHaveBeenCalledTimes(1);
  });

  test("an old one is not believed: the claim has been told of a later grant since", async () => {
    // The claim is granted and ended, and another client is granted the key. The waiter learns at a heartbeat that its
    // claim is gone and joins the queue again. Only then does the push reach it.
    const { scene, rival, holder, waiting } = await sceneWithWaiter();
    scene.faults = ({ verb }) => (verb === "push" ? { afterMs: TTL_MS / 2 } : undefined);
    await holder.release();
    const [granted] = (await scene.status("k")).held;
    await scene.backend.release([{ key: "k", id: granted!.id }]);
    const next = await rival.mutex("k", { ttlMs: 60_000 }).acquire();
    await scene.clock.advance(TTL_MS / 2 - 1);
    expect([scene.sent("acquire").length, scene.sent("renew").length]).toEqual([2, 1]);
    await scene.clock.advance(1);
    expect([waiting.state, next.held]).toEqual(["pending", true]);
    expect(scene.sent("renew")).toHaveLength(2);
  });

  test("one for an id that an earlier call had too is not believed: a late request of that call may have it", async () => {
    const scene = new Scene();
    const rival = scene.rival();
    const mutex = scene.locks.mutex("k", { ttlMs: TTL_MS });
    const holder = await rival.mutex("k", { ttlMs: 60_000 }).acquire();

    // The first call is cancelled, and its request comes to the store once more, a while later.
    scene.faults = ({ verb }) =>
      verb === "acquire" ? { lose: "reply", hang: true, repeatAfterMs: 200 } : undefined;
    const cancelled = new AbortController();
    const first = scene.begin(mutex.acquire({ id: "job", signal: cancelled.signal }));
    await scene.clock.advance(0);
    scene.faults = () => undefined;
    cancelled.abort();
    await scene.clock.advance(100);
    expect(first.state).toBe("rejected");

    // The second call waits with the same id when that happens.
    const second = scene.begin(mutex.acquire({ id: "job" }));
    await scene.clock.advance(150);
    await holder.release();
    await scene.clock.advance(0);
    // Whatever it took to get there: who believes to hold does.
    const [held] = (await scene.status("k")).held;
    expect(second.value?.held).toBe(true);
    expect(second.value?.fence).toBe(held?.fence);
    expect(scene.sent("renew").length).toBeGreaterThan(0);
    // The store knows it by the second call's token, so that a heartbeat proves it.
    expect(await second.value?.extend(TTL_MS * 2)).toBeGreaterThan(scene.clock.wallMs() + TTL_MS);
    expect(second.value?.held).toBe(true);
  });

  test("one that comes when little is left of the claim's life is proven by a heartbeat first", async () => {
    const { scene, holder, waiting } = await sceneWithWaiter();
    // Three heartbeats get no answer.
    scene.faults = ({ verb }) => (verb === "renew" ? { lose: "request", hang: true } : undefined);
    await scene.clock.advance(TTL_MS / 2 + 1);
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting.state).toBe("pending");
    scene.reconnect();
    await scene.clock.advance(500);
    expect(waiting.value?.held).toBe(true);
  });
});
