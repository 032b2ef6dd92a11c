import { HoldfastError, LeaseLostError } from "holdfast";
import { describe, expect, test } from "vitest";
import { claimRequest } from "../../record/claim-request.ts";
import { TTL_MS, TwoThreads } from "./two-threads.ts";

/** A lease whose second heartbeat has shown that it knows the store, so that everything it says counts. */
async function keptLease(world: TwoThreads, options: { maxHoldMs?: number; reacquire?: boolean } = {}) {
  const lease = await world.locks.mutex("k", { ttlMs: TTL_MS, ...options }).acquire();
  await world.advance(20);
  expect(world.news).toEqual([{ type: "proven" }]);
  return lease;
}

describe("a blocked event loop", () => {
  test("keeps its lease for as long as the second heartbeat renews it", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    const { fence } = lease;
    const rival = world.rival();
    let intruded = false;
    void rival
      .mutex("k")
      .acquire({ waitMs: 9_000 })
      .then(
        () => {
          intruded = true;
        },
        () => {},
      );
    const seen: boolean[] = [];
    await world.block(3 * TTL_MS, () => {
      seen.push(lease.held);
      lease.assertHeld();
    });
    expect(new Set(seen)).toEqual(new Set([true]));
    expect(intruded).toBe(false);
    expect(lease.expiresAtMs).toBeGreaterThan(world.first.wallMs());
    // And when it turns again, it goes on as if nothing had been.
    await world.advance(TTL_MS);
    expect(lease).toMatchObject({ held: true, fence });
    expect(await lease.release()).toBe(true);
  });

  test("is left alone by the second heartbeat while the first one works", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    const before = world.renewals;
    await world.advance(10 * TTL_MS);
    expect(lease.held).toBe(true);
    expect(world.renewals).toBe(before);
  });

  // A second heartbeat that knew of the ttl alone would begin before the first one is due.
  test.each([100, TTL_MS / 2])(
    "is left alone too by one that renews every %i ms, and kept at that pace",
    async (renewEveryMs) => {
      const world = new TwoThreads();
      const lease = await world.locks.mutex("k", { ttlMs: TTL_MS, renewEveryMs }).acquire();
      await world.advance(20);
      const before = world.renewals;
      await world.advance(10 * TTL_MS);
      expect(world.renewals).toBe(before);
      await world.block(3 * TTL_MS);
      expect(lease.held).toBe(true);
      const expected = (3 * TTL_MS) / renewEveryMs;
      expect(world.renewals - before).toBeGreaterThanOrEqual(expected - 8);
      expect(world.renewals - before).toBeLessThanOrEqual(expected + 1);
    },
  );

  test("does not keep a lease whose renewal was paused, and keeps it once that is resumed", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    lease.pauseRenewal();
    const before = world.renewals;
    await world.block(TTL_MS / 2);
    expect(world.renewals).toBe(before);
    lease.resumeRenewal();
    await world.advance(20);
    await world.block(3 * TTL_MS);
    expect(lease.held).toBe(true);
    lease.pauseRenewal();
    await world.block(TTL_MS);
    expect(lease).toMatchObject({ held: false, lost: "expired" });
  });

  test("loses its lease where the second heartbeat has died", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    world.kill();
    await world.block(TTL_MS);
    expect(lease.held).toBe(false);
    expect(lease.state.lost).toBe("expired");
  });

  test("a connection of the application that is cut is made up for, too", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    world.firstFaults = () => ({ lose: "request", hang: true });
    await world.advance(5 * TTL_MS);
    expect(lease.held).toBe(true);
    world.firstFaults = () => undefined;
    await world.advance(TTL_MS);
    expect(await lease.release()).toBe(true);
  });

  // (1) Both leases are renewed in one call. (2) The server of the other one hangs. (3) What was said of this one waits for that.
  test("keeps its lease though the store keeps silent about another one", async () => {
    const world = new TwoThreads();
    const other = await world.locks.mutex("other", { ttlMs: TTL_MS }).acquire();
    const lease = await keptLease(world);
    world.secondFaults = (call) =>
      call.verb === "renew" && call.args[0].some(({ key }) => key === "other")
        ? { lose: "request", hang: true }
        : undefined;
    await world.block(3 * TTL_MS);
    expect(other.held).toBe(false);
    expect(lease.held).toBe(true);
  });

  test("is told what the store says of a lease: released by force", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    await world.rival().forceRelease("k", lease.id);
    await world.block(2_000);
    expect(lease.held).toBe(false);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(lease.state.lost).toBe("gone");
  });

  test("is told what the store says of a lease: taken over by its id", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    await world.rival().mutex("k").acquire({ id: lease.id });
    await world.block(2_000);
    expect(lease.state).toMatchObject({ held: false, lost: "taken-over" });
  });

  test("tells a loss before anything else that it does when it turns again", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    const events: string[] = [];
    lease.signal.addEventListener("abort", () => events.push("lost"));
    // The answer is there, and is read when the event loop turns.
    world.firstFaults = () => ({ afterMs: 1 });
    void world.locks
      .mutex("other", { ttlMs: 60_000 })
      .acquire()
      .then(() => events.push("acquired"));
    await world.rival().forceRelease("k", lease.id);
    await world.block(2_000);
    await world.advance(10);
    expect(events).toEqual(["lost", "acquired"]);
  });

  test("wins a lost lease again if it was asked to, under the eyes of both heartbeats", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world, { reacquire: true });
    const { fence } = lease;
    await world.rival().forceRelease("k", lease.id);
    await world.block(2_000);
    expect(lease.held).toBe(false);
    await world.advance(100);
    expect(lease.held).toBe(true);
    expect(lease.fence).toBeGreaterThan(fence);
    await world.block(3 * TTL_MS);
    expect(lease.held).toBe(true);
  });
});

describe("the end of an endless body", () => {
  test("maxBlockedMs: its lease is lost and released, and the next holder has a higher fence", async () => {
    const world = new TwoThreads({ maxBlockedMs: 10_000 });
    const lease = await keptLease(world);
    const rival = world.rival();
    let next: { fence: bigint } | undefined;
    void rival
      .mutex("k", { ttlMs: TTL_MS })
      .acquire()
      .then((granted) => {
        next = granted;
      });
    let overlapped = false;
    await world.block(9_500, () => {
      overlapped ||= next !== undefined;
    });
    expect(lease.held).toBe(true);
    await world.block(1_000, () => {
      overlapped ||= lease.held && next !== undefined;
    });
    expect(lease.state).toMatchObject({ held: false, lost: "blocked" });
    expect(next?.fence).toBeGreaterThan(lease.fence);
    expect(overlapped).toBe(false);
  });

  test("maxBlockedMs never ends a lease sooner than its own ttl would", async () => {
    const world = new TwoThreads({ maxBlockedMs: 1_000 });
    const lease = await keptLease(world);
    await world.block(2_500);
    expect(lease.held).toBe(true);
    await world.block(600);
    expect(lease.held).toBe(false);
  });

  test("maxHoldMs: its lease is lost and released, and the next holder has a higher fence", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world, { maxHoldMs: 5_000 });
    const rival = world.rival();
    let next: { fence: bigint } | undefined;
    void rival
      .mutex("k", { ttlMs: TTL_MS })
      .acquire()
      .then((granted) => {
        next = granted;
      });
    await world.block(4_900);
    expect(lease.held).toBe(true);
    expect(next).toBeUndefined();
    await world.block(1_000);
    expect(lease.state).toMatchObject({ held: false, lost: "max-hold" });
    expect(next?.fence).toBeGreaterThan(lease.fence);
  });
});

describe("what crosses on the way", () => {
  // It names a token whose claim is gone, and the cell of the lease is no longer read.
  test("a renewal that arrives after the release revives nothing, and its answer is no loss", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    // The renewal of the second heartbeat is on its way when the event loop turns again.
    world.secondFaults = ({ verb }) => (verb === "renew" ? { beforeMs: 500 } : undefined);
    await world.block(1_600);
    expect(await lease.release()).toBe(true);
    const rival = await world.rival().mutex("k").acquire();
    await world.advance(1_000);
    expect(rival.held).toBe(true);
    expect(lease.state).toMatchObject({ held: false, lost: undefined, released: true });
    expect(lease.signal.aborted).toBe(false);
    expect(world.locks.stats().lost).toBe(0);
  });

  // Cells are never reused, so the late answer is written to a cell that no lease reads.
  test("an answer about a lease that is over proves nothing for the next one on the same key", async () => {
    const world = new TwoThreads();
    const first = await keptLease(world);
    // The store's answer to the second heartbeat comes only after the next lease was granted.
    world.secondFaults = ({ verb }) => (verb === "renew" ? { afterMs: 1_000 } : undefined);
    await world.block(1_600);
    expect(await first.release()).toBe(true);
    const second = await world.locks.mutex("k", { ttlMs: 600 }).acquire();
    world.kill();
    await world.block(600);
    expect(second.held).toBe(false);
  });

  test("an order that comes late, after the lease was given back, is of no consequence", async () => {
    const world = new TwoThreads();
    await keptLease(world).then((lease) => lease.release());
    world.orderMs = 2_000;
    const lease = await world.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await world.advance(10);
    expect(await lease.release()).toBe(true);
    const rival = await world.rival().mutex("k").acquire();
    await world.advance(3 * TTL_MS);
    expect(rival.held).toBe(true);
  });

  // The event loop never turns again, so only the shared word says that the first heartbeat gave up.
  test("a lease that the body knows to be over is not renewed, though no message says so", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    world.orderMs = 1_000_000;
    // Of the two that know it to be over, the thread must not be the one that finds out later.
    expect(await lease.release()).toBe(true);
    const before = world.renewals;
    await world.block(3 * TTL_MS);
    expect(world.renewals).toBe(before);
  });

  // The application may have found `held` false already.
  test("an answer that comes after the deadline is not believed", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    // Sent after half a ttl, answered after the deadline, and proof for another while by then.
    world.secondFaults = ({ verb }) => (verb === "renew" ? { afterMs: 1_700 } : undefined);
    await world.block(3_400);
    expect(lease.held).toBe(false);
    expect(lease.state.lost).toBe("expired");
  });

  test("an answer proves the lease from when it was asked for, not from when it came", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    let renewals = 0;
    world.secondFaults = () => (++renewals === 1 ? { afterMs: 1_000 } : { lose: "request", hang: true });
    await world.block(4_300);
    expect(lease.held).toBe(true);
    await world.block(400);
    expect(lease.held).toBe(false);
    expect((await world.rival().inspect("k")).heldCount).toBe(0);
  });

  test("a late copy of the acquire that revives the claim under another fence is a loss", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    const { key, id, token } = lease;
    await world.rival().forceRelease(key, id);
    await world
      .rival()
      .mutex(key)
      .run(() => {});
    const copy = await world.backend.acquire(claimRequest(id, { key, token, ttlMs: TTL_MS }));
    expect(copy).toMatchObject({ state: "held" });
    await world.block(1_600);
    expect(lease.state).toMatchObject({ held: false, lost: "gone" });
    // Nobody wants what the copy made.
    await world.advance(100);
    expect((await world.rival().inspect(key)).heldCount).toBe(0);
  });

  test("a lease that was left to somebody else is no longer renewed", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    lease.detach();
    await world.block(2 * TTL_MS);
    expect((await world.rival().inspect("k")).heldCount).toBe(0);
  });

  test("renewals that fail are repeated until the deadline", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    const startMs = world.second.monotonicMs();
    world.secondFaults = () =>
      world.second.monotonicMs() < startMs + 2_500 ? { lose: "request" } : undefined;
    await world.block(3 * TTL_MS);
    expect(lease.held).toBe(true);
    expect(await lease.release()).toBe(true);
  });

  test("a client that is closed while it was blocked leaves nothing behind", async () => {
    const world = new TwoThreads();
    const lease = await keptLease(world);
    await world.block(2 * TTL_MS);
    const closing = world.locks.close();
    await world.advance(100);
    await closing;
    expect(lease.held).toBe(false);
    expect((await world.rival().inspect("k")).heldCount).toBe(0);
  });
});

describe("a second heartbeat that cannot be relied upon", () => {
  test("over the wrong store costs no lease, and says so", async () => {
    const world = new TwoThreads({ wrongStore: true });
    const lease = await world.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await world.block(2_500);
    expect(lease.held).toBe(true);
    await world.advance(TTL_MS);
    expect(lease.held).toBe(true);
    expect(world.news[0]).toEqual({ type: "unknown", number: 1 });
    expect(world.news.map(({ type }) => type)).not.toContain("lost");
  });

  test("over a store that does not let it in says so at once", async () => {
    const world = new TwoThreads();
    const error = new HoldfastError("UNAUTHORIZED", "Wrong password.");
    world.secondFaults = () => ({ error });
    const lease = await world.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await world.advance(3 * TTL_MS);
    expect(lease.held).toBe(true);
    expect(world.news).toEqual([{ type: "failing", code: "UNAUTHORIZED", message: "Wrong password." }]);
  });

  test.each([
    ["is silent", { lose: "request", hang: true }],
    ["is down", { lose: "request" }],
  ] as const)("over a store that %s says so, and works once it is back", async (_, fault) => {
    const world = new TwoThreads();
    world.secondFaults = () => fault;
    const lease = await world.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await world.advance(2 * TTL_MS);
    expect(world.news).toMatchObject([{ type: "failing", code: "STORE_UNAVAILABLE" }]);
    world.secondFaults = () => undefined;
    await world.advance(TTL_MS);
    expect(world.news.at(-1)).toEqual({ type: "proven" });
    await world.block(3 * TTL_MS);
    expect(lease.held).toBe(true);
  });
});
