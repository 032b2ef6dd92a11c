/** Whatever a listener does, the locks that it is told of go on as they would without it. */
import type { EventHandlers, EventKind } from "holdfast";
import { settled } from "holdfast/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { observeScenes, Scene, TTL_MS } from "./scene.ts";
import { collectUncaught } from "./uncaught.ts";

const uncaught = collectUncaught();

function listen(handlers: EventHandlers): void {
  onTestFinished(observeScenes(handlers));
}

describe("a listener that throws", () => {
  test("is an uncaught exception, and in the way of no lock", async () => {
    const fail = (kind: EventKind) => () => {
      throw new Error(`cannot log ${kind}`);
    };
    listen({ acquire: fail("acquire"), granted: fail("granted"), released: fail("released") });
    const { locks } = new Scene();
    const lease = await locks.mutex("k").acquire();
    expect(await lease.release()).toBe(true);
    expect(await locks.mutex("k").tryRun(() => 1)).toEqual({ ran: true, value: 1 });
    await settled();
    expect(uncaught.map((error) => (error as Error).message)).toEqual([
      "cannot log acquire",
      "cannot log granted",
      "cannot log released",
      "cannot log acquire",
      "cannot log granted",
      "cannot log released",
    ]);
  });

  test("does not keep other listeners from being told", async () => {
    const told: string[] = [];
    listen({
      granted() {
        throw new Error("broken");
      },
    });
    listen({ granted: ({ claim }) => told.push(claim.id) });
    const lease = await new Scene().locks.mutex("k").acquire();
    expect(told).toEqual([lease.id]);
    await settled();
    expect(uncaught).toHaveLength(1);
  });

  test("an eventKey that throws withholds the key, and is an uncaught exception", async () => {
    const keys: unknown[] = [];
    listen({ granted: ({ claim }) => keys.push(claim.key) });
    const { locks } = new Scene({
      eventKey: () => {
        throw new Error("no label");
      },
    });
    expect((await locks.mutex("k").acquire()).held).toBe(true);
    expect(keys).toEqual([undefined]);
    await settled();
    expect(uncaught).toEqual([new Error("no label")]);
  });
});

describe("a listener that acts at once", () => {
  test("may cancel what has just been asked for", async () => {
    const scene = new Scene();
    const controller = new AbortController();
    listen({ acquire: () => controller.abort(new Error("no longer")) });
    const acquiring = scene.begin(scene.locks.mutex("k").acquire({ signal: controller.signal }));
    await scene.clock.advance(0);
    expect(acquiring.error).toEqual(new Error("no longer"));
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  // The claim leaves during its own event; its heartbeat must not be scheduled in place of the release.
  test("may cancel what has just begun to wait", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    const controller = new AbortController();
    listen({ waiting: () => controller.abort(new Error("no longer")) });
    const acquiring = scene.begin(scene.locks.mutex("k").acquire({ signal: controller.signal }));
    await scene.clock.advance(0);
    expect(acquiring.error).toEqual(new Error("no longer"));
    expect((await scene.status("k")).waitingCount).toBe(0);
    expect(scene.locks.stats()).toMatchObject({ waiting: 0, cancelled: 1 });
  });

  test("may cancel what has just begun to wait, and its leaving is still repeated until it is confirmed", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    const controller = new AbortController();
    listen({ waiting: () => controller.abort() });
    scene.faults = ({ verb, count }) =>
      verb === "release" && count === 1 ? { lose: "request", hang: true } : undefined;
    const { signal } = controller;
    scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ signal }));
    await scene.clock.advance(600);
    expect(scene.sent("release")).toHaveLength(2);
    expect((await scene.status("k")).waitingCount).toBe(0);
  });

  test("may let go of one claim when it is told of another's grant, in the same push", async () => {
    const scene = new Scene();
    const rival = scene.rival();
    const held = [await rival.mutex("a").acquire(), await rival.mutex("b").acquire()];
    const leaving = new AbortController();
    const { signal } = leaving;
    // A grant under an id of one's own choice is asked about first; the other one is believed at once.
    const waiting = [
      scene.begin(scene.locks.mutex("a").acquire({ id: "mine", signal, detachOnAbort: true })),
      scene.begin(scene.locks.mutex("b").acquire()),
    ];
    await scene.clock.advance(10);
    listen({ granted: ({ claim }) => claim.key === "b" && leaving.abort() });
    await scene.backend.release(held.map(({ key, id }) => ({ key, id })));
    await scene.clock.advance(10);
    expect(waiting.map(({ state }) => state)).toEqual(["rejected", "fulfilled"]);
    expect(scene.sent("push")).toMatchObject([{ args: [scene.locks.owner, [{ key: "a" }, { key: "b" }]] }]);
    // Left to whoever goes on with it, so nobody prolongs it here.
    expect(scene.sent("renew")).toEqual([]);
  });

  test("may look at a lease whose heartbeat has just failed, at the very end of its time", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const looks: boolean[] = [];
    listen({
      "renewal-failed"() {
        scene.clock.block(TTL_MS);
        looks.push(lease.held);
      },
    });
    scene.faults = ({ verb }) => (verb === "renew" ? { lose: "request" } : undefined);
    await scene.clock.advance(1_000);
    expect(looks).toEqual([false]);
    expect(scene.locks.stats()).toMatchObject({ held: 0, lost: 1 });
    // Nothing is left that closing would have to wait for.
    const closing = scene.begin(scene.locks.close({ graceMs: 10_000 }));
    await scene.clock.advance(0);
    expect(closing.state).toBe("fulfilled");
  });

  test("may look at the lease that it is told the loss of", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    const looks: unknown[] = [];
    listen({ lost: () => looks.push(lease.held, lease.signal.aborted) });
    await scene.clock.advance(TTL_MS);
    expect(looks).toEqual([false, true]);
    expect(scene.locks.stats()).toMatchObject({ held: 0, lost: 1 });
    expect(uncaught).toEqual([]);
  });

  test("may release a lease of which a heartbeat went unanswered, and that is still repeated until it is confirmed", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    let releasing = scene.begin(Promise.resolve(false));
    let renewals = 0;
    listen({
      "renewal-failed"() {
        renewals = scene.sent("renew").length;
        releasing = scene.begin(lease.release());
      },
    });
    scene.cutOff();
    await scene.clock.advance(1_600);
    expect(releasing.state).toBe("pending");
    // It is noticed in the step that sends the next heartbeat, and told when that step is over.
    expect(renewals).toBe(2);
    expect(scene.sent("renew")).toHaveLength(renewals);
    scene.reconnect();
    await scene.clock.advance(1_000);
    expect(releasing.value).toBe(true);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  // The event is published while the lease is being lost; `held` would lose it a second time.
  test("may look at a lease when an outage is told of, though the outage is what ends it", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const looks: boolean[] = [];
    listen({ "store-unavailable": () => looks.push(lease.held) });
    scene.cutOff();
    await scene.clock.advance(TTL_MS);
    expect(looks).toEqual([false]);
    expect(scene.locks.stats()).toMatchObject({ held: 0, lost: 1, outages: 1 });
  });

  test("may close the client when a lease is lost", async () => {
    const scene = new Scene();
    const other = await scene.locks.mutex("other").acquire();
    scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire());
    let closing = scene.begin(Promise.resolve());
    listen({ lost: () => (closing = scene.begin(scene.locks.close())) });
    await scene.clock.advance(TTL_MS);
    expect(closing.state).toBe("fulfilled");
    expect(other.signal.reason).toMatchObject({ reason: "closed" });
  });
});
