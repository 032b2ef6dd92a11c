import { LeaseLostError } from "holdfast";
import { settled } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { Scene, TTL_MS } from "./scene.ts";

describe("closing: without grace", () => {
  test("leases are lost with the reason closed, and released in the store", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    const { signal } = lease;
    const next = scene.begin(scene.rival().mutex("k").acquire());
    await scene.locks.close();
    expect(signal.reason).toBeInstanceOf(LeaseLostError);
    expect(signal.reason).toMatchObject({ reason: "closed", key: "k" });
    expect(lease.state).toMatchObject({ held: false, lost: "closed", released: false });
    await scene.clock.advance(0);
    expect(next.value?.held).toBe(true);
    expect(await lease.release()).toBe(false);
  });

  test("waiting and asking calls reject with CLOSED once their claims are gone", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    const waiting = scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(0);
    scene.faults = ({ verb }) => (verb === "release" ? undefined : { beforeMs: 50 });
    const asking = scene.begin(scene.locks.mutex("other").acquire());
    await scene.locks.close();
    for (const { error } of [waiting, asking]) expect(error).toMatchObject({ code: "CLOSED" });
    expect((await scene.status("k")).waitingCount).toBe(0);
    await scene.clock.advance(50);
    expect((await scene.status("other")).heldCount).toBe(0);
  });

  test("nothing runs afterwards: no timer, no heartbeat, no listener", async () => {
    const scene = new Scene();
    const holder = await scene.rival().mutex("busy").acquire();
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire());
    scene.begin(scene.locks.mutex("busy").acquire());
    await scene.clock.advance(0);
    await scene.locks.close();
    const calls = scene.calls.length;
    // A grant to this client, which a listener that was left behind would hear of.
    await scene.backend.acquire(claimRequest("late", { key: "busy", owner: scene.locks.owner }));
    await holder.release();
    await scene.clock.advance(60_000);
    expect(scene.calls.length).toBe(calls);
    expect(scene.clock.pendingTimers).toBe(0);
  });

  test("every verb says CLOSED, from the moment that closing begins", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k");
    const group = scene.locks.all([lock, scene.locks.mutex("l")]);
    const closing = scene.locks.close();
    const calls = [
      () => lock.tryAcquire(),
      () => lock.acquire(),
      () => lock.tryRun(() => "ran"),
      () => lock.run(() => "ran"),
      () => lock.inspect(),
      () => scene.locks.rwLock("k").read.acquire(),
      () => scene.locks.semaphore("k", 2).acquire(),
      () => scene.locks.mutex("skipping", { onUnavailable: "skip" }).tryAcquire(),
      () => group.tryAcquire(),
      () => group.acquire(),
      () => group.run(() => "ran"),
      () => scene.locks.inspect("k"),
      () => scene.locks.list().next(),
      () => scene.locks.forceRelease("k", "id"),
    ];
    for (const call of calls) await expect(call()).rejects.toMatchObject({ code: "CLOSED" });
    await closing;
    expect(scene.calls).toEqual([]);
  });

  test("is the same however often it is asked for, and is what leaving a scope does", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k").acquire());
    await Promise.all([scene.locks.close(), scene.locks.close(), scene.locks[Symbol.asyncDispose]()]);
    expect(scene.sent("release")).toHaveLength(1);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test.each([
    ["closes the store with it", true, 1],
    ["leaves a store that is shared open", false, 0],
  ])("%s", async (_, closeStore, times) => {
    const scene = new Scene({ closeStore });
    let closed = 0;
    scene.backend.close = async () => void closed++;
    await scene.locks.close();
    await scene.locks.close();
    expect(closed).toBe(times);
  });

  test("a lease that could not be released is a warning", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k").acquire());
    scene.refuseCalls();
    const closing = scene.begin(scene.locks.close());
    await scene.clock.advance(4_999);
    expect(closing.state).toBe("pending");
    await scene.clock.advance(1);
    expect(closing.state).toBe("fulfilled");
    expect(scene.warnings).toMatchObject([{ code: "RELEASE_FAILED", key: "k" }]);
  });

  test("a store that is slow, but answers within the time that it has, is no warning", async () => {
    const scene = new Scene({ requestTimeoutMs: 3_000 });
    scene.keep(await scene.locks.mutex("k").acquire());
    scene.faults = ({ verb }) => (verb === "release" ? { beforeMs: 2_900 } : undefined);
    const closing = scene.begin(scene.locks.close());
    await scene.clock.advance(2_900);
    expect(closing.state).toBe("fulfilled");
    expect(scene.warnings).toEqual([]);
    expect(await scene.status("k")).toMatchObject({ heldCount: 0 });
  });

  test("waits until the store has heard of what was lost before", async () => {
    const scene = new Scene();
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire());
    scene.faults = ({ verb }) => (verb === "release" ? { beforeMs: 100 } : undefined);
    await scene.clock.advance(2_996);
    const closing = scene.begin(scene.locks.close());
    await scene.clock.advance(99);
    expect(closing.state).toBe("pending");
    await scene.clock.advance(1);
    expect(closing.state).toBe("fulfilled");
  });

  test("does not wait for ever for a store that has fallen silent", async () => {
    const scene = new Scene({ requestTimeoutMs: 2_000 });
    const lease = await scene.locks.mutex("k", { ttlMs: 1_000 }).acquire();
    scene.cutOff();
    // The lease is lost by its deadline, and what tells the store so is never answered.
    await scene.clock.advance(1_000);
    expect(lease.held).toBe(false);
    const closing = scene.begin(scene.locks.close());
    await scene.clock.advance(2_000);
    expect(closing.state).toBe("fulfilled");
  });

  test("a signal first asked for while the client closes has aborted already", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    scene.faults = ({ verb }) => (verb === "release" ? { afterMs: 100 } : undefined);
    const closing = scene.begin(scene.locks.close());
    await scene.clock.advance(50);
    expect(lease.held).toBe(false);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    await scene.clock.advance(50);
    expect(closing.state).toBe("fulfilled");
  });
});

describe("closing: with grace", () => {
  test("waits until all has ended by itself, and no longer", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const closing = scene.begin(scene.locks.close({ graceMs: 60_000 }));
    await scene.clock.advance(10_000);
    expect([lease.held, closing.state]).toEqual([true, "pending"]);
    expect(await lease.release()).toBe(true);
    await scene.clock.advance(0);
    expect(closing).toMatchObject({ state: "fulfilled", atMs: 10_000 });
  });

  test("can be cut short by closing again, and not be prolonged", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const patient = scene.begin(scene.locks.close({ graceMs: Number.POSITIVE_INFINITY }));
    await scene.clock.advance(1_000);
    const hasty = scene.begin(scene.locks.close({ graceMs: 500 }));
    scene.begin(scene.locks.close({ graceMs: 60_000 }));
    await scene.clock.advance(499);
    expect([lease.held, patient.state, hasty.state]).toEqual([true, "pending", "pending"]);
    await scene.clock.advance(1);
    expect(lease.held).toBe(false);
    expect([patient.atMs, hasty.atMs]).toEqual([1_500, 1_500]);
  });

  test("cuts off what is still open when it is over", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const waiting = scene.begin(scene.locks.mutex("k").acquire());
    const closing = scene.begin(scene.locks.close({ graceMs: 5_000 }));
    await scene.clock.advance(4_999);
    expect([lease.held, waiting.state, closing.state]).toEqual([true, "pending", "pending"]);
    await scene.clock.advance(1);
    expect(lease.signal.reason).toMatchObject({ reason: "closed" });
    expect(waiting.error).toMatchObject({ code: "CLOSED" });
    expect(closing.state).toBe("fulfilled");
  });

  test("serves who already waits, and nobody who comes later", async () => {
    const scene = new Scene();
    const holder = await scene.rival().mutex("k").acquire();
    const waiting = scene.begin(scene.locks.mutex("k").run(() => "served"));
    await scene.clock.advance(0);
    const closing = scene.begin(scene.locks.close({ graceMs: Number.POSITIVE_INFINITY }));
    await expect(scene.locks.mutex("other").tryAcquire()).rejects.toMatchObject({ code: "CLOSED" });
    // Longer than a timer can be set for at once.
    await scene.clock.advance(3 * 3_600_000);
    expect(closing.state).toBe("pending");
    await holder.release();
    await scene.clock.advance(0);
    expect(waiting.value).toBe("served");
    expect(closing.state).toBe("fulfilled");
  });

  test("returns at once when nothing is open", async () => {
    const scene = new Scene();
    await scene.locks.mutex("k").run(() => {});
    await scene.locks.close({ graceMs: Number.POSITIVE_INFINITY });
    await settled();
    expect(scene.clock.pendingTimers).toBe(0);
  });

  test.each([-1, Number.NaN, "5" as unknown as number])(
    "a grace of %s is refused, and nothing is closed",
    async (graceMs) => {
      const scene = new Scene();
      await expect(scene.locks.close({ graceMs })).rejects.toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("graceMs"),
      });
      expect(await scene.locks.mutex("k").run(() => "still open")).toBe("still open");
      await scene.locks.close();
      await expect(scene.locks.mutex("k").tryAcquire()).rejects.toMatchObject({ code: "CLOSED" });
    },
  );
});
