/** Guards of the client's claim that no other test reaches. Each test fails when its guard is taken out. */
import { memoryStore } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

/**
 * 1. The answer to the first acquire, "waiting", is slow, so the acquire is repeated. Then the answer arrives.
 * 2. The repeat reaches the store when the claim has been granted. Its answer "held" is slow.
 * 3. The claim is ended by force, and another client is granted the key.
 * 4. A heartbeat is answered with "gone", and the client asks again. The answer to that is slow.
 * 5. The answer of step 2 arrives. A client that believed it would be the second holder.
 */
test("an answer from before a claim was gone does not make it held while it asks again", async () => {
  const scene = new Scene();
  const rival = scene.rival();
  const holder = await rival.mutex("k").acquire();
  scene.faults = ({ verb, count }) => {
    if (verb === "push") return { lose: "request" };
    if (verb !== "acquire") return undefined;
    if (count === 1) return { afterMs: 600 };
    return count === 2 ? { beforeMs: 200, afterMs: 1_200 } : { beforeMs: 2_000 };
  };
  const acquiring = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
  await scene.clock.advance(650);
  const [waiter] = (await scene.status("k")).waiting;
  await holder.release();
  await scene.clock.advance(100);
  expect(await rival.forceRelease("k", waiter!.id)).toBe(true);
  const next = await rival.mutex("k", { ttlMs: 60_000 }).acquire();
  await scene.clock.advance(300);
  expect(scene.sent("acquire")).toHaveLength(3);
  await scene.clock.advance(900);
  expect([acquiring.state, next.held]).toEqual(["pending", true]);
});

/**
 * 1. The claim waits. Its heartbeat is answered with "waiting", and that answer is slow.
 * 2. The key comes free, and the grant is pushed: the client holds.
 * 3. The slow answer arrives. It was sent before the grant and says nothing of the lease.
 */
test("a late waiting answer does not cost a lease that a push has brought since", async () => {
  const scene = new Scene();
  const holder = await scene.rival().mutex("k", { ttlMs: 60_000 }).acquire();
  scene.faults = ({ verb, count }) => (verb === "renew" && count === 1 ? { afterMs: 400 } : undefined);
  const waiting = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
  await scene.clock.advance(TTL_MS / 3 + 100);
  expect(scene.sent("renew")).toHaveLength(1);
  await holder.release();
  await scene.clock.advance(0);
  expect(waiting.value?.held).toBe(true);
  await scene.clock.advance(400);
  expect(waiting.value?.held).toBe(true);
  expect(scene.locks.stats().lost).toBe(0);
});

test("a lease that is being won again goes on asking while the queue is full", async () => {
  const clock = new ManualClock();
  const scene = new Scene({}, clock, memoryStore({ clock, maxWaiters: 1 }));
  const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).acquire();
  const rival = scene.rival();
  await rival.forceRelease("k", lease.id);
  const holder = await rival.mutex("k").acquire();
  const queued = scene.begin(rival.mutex("k").acquire());
  await scene.clock.advance(2_000);
  expect(lease.state).toMatchObject({ held: false, lost: "gone" });
  expect(lease.signal.aborted).toBe(false);

  await holder.release();
  await scene.clock.advance(0);
  await queued.value?.release();
  await scene.clock.advance(TTL_MS);
  expect(lease.held).toBe(true);
});

test("a release whose reply was lost says that it was held, once it is repeated", async () => {
  const scene = new Scene();
  const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
  scene.faults = ({ verb, count }) =>
    verb === "release" && count === 1 ? { lose: "reply", hang: true } : undefined;
  const releasing = scene.begin(lease.release());
  await scene.clock.advance(TTL_MS);
  expect(scene.sent("release")).toHaveLength(2);
  expect(releasing).toMatchObject({ state: "fulfilled", value: true });
});

test("a lease that came of a try waits for its turn when it is won again", async () => {
  const scene = new Scene();
  const rival = scene.rival();
  const lease = scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).tryAcquire());
  await rival.forceRelease("k", lease!.id);
  const holder = await rival.mutex("k", { ttlMs: 60_000 }).acquire();
  await scene.clock.advance(TTL_MS);
  expect((await scene.status("k")).waiting).toMatchObject([{ id: lease!.id }]);
  await holder.release();
  await scene.clock.advance(0);
  expect(lease!.held).toBe(true);
});

/** The first acquire is slow and fails. Its repeat is granted before that. */
test("a repeated acquire that fails after the grant does not count as a failed renewal", async () => {
  const scene = new Scene();
  scene.faults = ({ verb, count }) =>
    verb === "acquire" && count === 1 ? { lose: "request", afterMs: 850 } : undefined;
  const acquiring = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
  await scene.clock.advance(500);
  expect(acquiring.value?.held).toBe(true);
  await scene.clock.advance(450);
  expect(scene.sent("renew")).toHaveLength(0);
  expect(scene.locks.stats()).toMatchObject({ renewalFailures: 0, failures: 1, held: 1 });
});
