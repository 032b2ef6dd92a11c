/** Claims that are left to somebody else, and the token that goes with them. */
import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

const named = { id: "job-1", token: "secret-1" };

describe("a token of the caller's", () => {
  test("with the same id gets the lease as it is, from another client too", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire(named);
    expect(lease.token).toBe("secret-1");
    const again = await scene.rival().mutex("k", { ttlMs: TTL_MS }).acquire(named);
    expect(again.fence).toBe(lease.fence);
  });

  test.each(["", "x".repeat(129), "a\nb"])("must be a token: %j", async (token) => {
    const scene = new Scene();
    await expect(scene.locks.mutex("k").acquire({ token })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });
});

describe("detaching a lease", () => {
  // Otherwise this client would release the claim at its own deadline, though another server has extended it.
  test("stops renewing it, leaves it until its ttl is over, and says that it is not held here", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.clock.advance(500);
    lease.detach();
    lease.detach();
    expect(lease.held).toBe(false);
    expect(lease.signal.aborted).toBe(false);
    expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ code: "NOT_HELD" }));
    expect(await lease.release()).toBe(false);
    await scene.clock.advance(TTL_MS - 501);
    expect((await scene.status("k")).heldCount).toBe(1);
    await scene.clock.advance(1);
    expect((await scene.status("k")).heldCount).toBe(0);
    expect(scene.sent("renew")).toEqual([]);
    expect(scene.sent("release")).toEqual([]);
    expect(scene.locks.stats()).toMatchObject({ held: 0, lost: 0 });
  });

  test("ends its watch, and frees its id", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire(named);
    const states = lease.watch();
    await states.next();
    lease.detach();
    expect((await states.next()).value).toMatchObject({ held: false, lost: undefined });
    expect((await states.next()).done).toBe(true);
    const again = await scene.locks.mutex("k").acquire(named);
    expect(again.fence).toBe(lease.fence);
  });

  test("the end of a client leaves it alone", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    lease.detach();
    await scene.locks.close();
    expect((await scene.status("k")).heldCount).toBe(1);
  });
});

describe("a wait that is cancelled with detachOnAbort", () => {
  test("keeps its place in the queue for whoever goes on with it", async () => {
    const scene = new Scene();
    const holder = await scene.rival().mutex("k", { ttlMs: TTL_MS }).acquire();
    const abort = new AbortController();
    const waiting = scene.begin(
      scene.locks
        .mutex("k", { ttlMs: TTL_MS })
        .acquire({ ...named, signal: abort.signal, detachOnAbort: true }),
    );
    await scene.clock.advance(10);
    const behind = scene.begin(scene.rival().mutex("k", { ttlMs: TTL_MS }).acquire());
    await scene.clock.advance(10);
    abort.abort("gone");
    await scene.clock.advance(0);
    expect(waiting).toMatchObject({ state: "rejected", error: "gone" });
    const goingOn = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire(named));
    await scene.clock.advance(10);
    await holder.release();
    await scene.clock.advance(10);
    expect(goingOn.state).toBe("fulfilled");
    expect(behind.state).toBe("pending");
  });

  // A call is cancelled; its grant arrives afterwards. Releasing it would take the claim from the call that continues it.
  test("is not taken back by an answer that comes late", async () => {
    const scene = new Scene();
    scene.faults = ({ verb }) => (verb === "acquire" ? { afterMs: 100 } : undefined);
    const abort = new AbortController();
    const asking = scene.begin(
      scene.locks
        .mutex("k", { ttlMs: TTL_MS })
        .acquire({ ...named, signal: abort.signal, detachOnAbort: true }),
    );
    await scene.clock.advance(10);
    abort.abort("gone");
    await scene.clock.advance(500);
    expect(asking).toMatchObject({ state: "rejected", error: "gone" });
    expect((await scene.status("k")).held.map(({ id }) => id)).toEqual(["job-1"]);
    expect(scene.sent("release")).toEqual([]);
  });
});

describe("onWaiting", () => {
  test("is told when the claim has to wait, and not when it need not", async () => {
    const scene = new Scene();
    const told: string[] = [];
    const onWaiting = (key: string) => told.push(key);
    const holder = await scene.locks.mutex("k").acquire({ onWaiting });
    expect(told).toEqual([]);
    const waiting = scene.begin(scene.locks.mutex("k").acquire({ onWaiting }));
    await scene.clock.advance(10);
    expect(told).toEqual(["k"]);
    await holder.release();
    await scene.clock.advance(10);
    expect(waiting.state).toBe("fulfilled");
    expect(told).toEqual(["k"]);
  });
});
