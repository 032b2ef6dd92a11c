import { inspect } from "node:util";
import { HoldfastError, LeaseLostError } from "holdfast";
import { describe, expect, test } from "vitest";
import { PROVEN_MS, Scene, TTL_MS } from "./scene.ts";

describe("lease: its signal", () => {
  test("aborts with a LeaseLostError that says why", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const { signal } = lease;
    await scene.rival().forceRelease("k", lease.id);
    await scene.clock.advance(1_000);
    expect(signal.reason).toBeInstanceOf(LeaseLostError);
    expect(signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "gone", key: "k" });
  });

  test("is the same one each time, and one first asked for after the loss has aborted already", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false });
    const lease = await lock.acquire();
    expect(lease.signal).toBe(lease.signal);
    await lease.release();
    const next = await lock.acquire();
    await scene.clock.advance(TTL_MS);
    expect(next.signal.aborted).toBe(true);
    expect(next.signal.reason).toMatchObject({ reason: "expired" });
  });

  test("aborts when it is first asked for past the deadline, before any timer has fired", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.clock.block(TTL_MS);
    expect(lease.signal.aborted).toBe(true);
  });

  test("does not abort with the release, whether asked for before or after", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS });
    const lease = await lock.acquire();
    const { signal } = lease;
    await lease.release();
    const later = await lock.acquire();
    await later.release();
    await scene.clock.advance(60_000);
    expect([signal.aborted, later.signal.aborted]).toEqual([false, false]);
  });

  test("aborts once held says false, and not before", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    const heldAtAbort: boolean[] = [];
    lease.signal.addEventListener("abort", () => heldAtAbort.push(lease.held));
    await scene.clock.advance(PROVEN_MS - 1);
    expect([lease.held, lease.signal.aborted]).toEqual([true, false]);
    await scene.clock.advance(1);
    expect(heldAtAbort).toEqual([false]);
  });

  test("aborts with a fraction of a millisecond to spare rather than late", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: 1_250, renew: false }).acquire();
    // Clocks may differ by a thousandth, and the store counts whole milliseconds: 1,247.75 are proven.
    await scene.clock.advance(1_246.9);
    expect(lease.held).toBe(true);
    scene.clock.block(0.9);
    expect(lease.held).toBe(false);
  });

  test("a listener may acquire, release and look at other leases", async () => {
    const scene = new Scene();
    const [doomed, other] = await Promise.all([
      scene.locks.mutex("doomed", { ttlMs: TTL_MS, renew: false }).acquire(),
      scene.locks.mutex("other", { ttlMs: TTL_MS }).acquire(),
    ]);
    doomed.signal.addEventListener("abort", () => {
      scene.begin(other.release());
      scene.begin(scene.locks.mutex("another").acquire());
    });
    await scene.clock.advance(TTL_MS);
    expect(other.state).toMatchObject({ held: false, released: true });
    expect((await scene.status("other")).heldCount).toBe(0);
    expect((await scene.status("another")).heldCount).toBe(1);
  });
});

describe("lease: assertHeld and state", () => {
  test("assertHeld passes while it is held, and tells lost from released", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false });
    const released = await lock.acquire();
    expect(() => released.assertHeld()).not.toThrow();
    await released.release();
    expect(() => released.assertHeld()).toThrow(expect.objectContaining({ code: "NOT_HELD", key: "k" }));
    const lost = await lock.acquire();
    scene.clock.block(TTL_MS);
    expect(() => lost.assertHeld()).toThrow(LeaseLostError);
  });

  test("state is all of it at one moment", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ id: "job-1" });
    const expiresAtMs = scene.clock.wallMs() + PROVEN_MS;
    const { fence } = lease;
    const common = { id: "job-1", fence, acquiredAtMs: scene.clock.wallMs(), expiresAtMs };
    const held = { ...common, expiresInMs: PROVEN_MS, held: true, lost: undefined, released: false };
    expect(lease.state).toEqual(held);
    expect(lease.expiresAtMs).toBe(expiresAtMs);
    await lease.release();
    expect(lease.state).toEqual({ ...held, expiresInMs: 0, held: false, released: true });
  });

  test("setting the wall clock changes what people read and nothing else", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.clock.setWall(0);
    expect(lease.expiresAtMs).toBe(PROVEN_MS);
    expect(lease.expiresInMs).toBe(PROVEN_MS);
    await scene.clock.advance(60_000);
    expect(lease.held).toBe(true);
  });
});

describe("lease: what people read", () => {
  test("acquiredAtMs is when it was granted, and stays, and is another one once it is won again", async () => {
    const scene = new Scene();
    const wallMs = scene.clock.wallMs();
    const holder = await scene.locks.mutex("k").acquire();
    const waiting = scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).acquire({ priority: 7 });
    await scene.clock.advance(500);
    await holder.release();
    const lease = await waiting;
    await scene.clock.advance(1_500);
    expect(lease).toMatchObject({ acquiredAtMs: wallMs + 500, priority: 7 });
    scene.clock.setWall(0);
    expect(lease.acquiredAtMs).toBe(wallMs + 500);
    await scene.locks.forceRelease("k", lease.id);
    await scene.clock.advance(1_000);
    expect(lease).toMatchObject({ held: true, priority: 7 });
    expect(lease.acquiredAtMs).toBeLessThanOrEqual(1_000);
  });

  test("lost says why a lease is lost, and nothing of one that is held or was released", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS });
    const released = await lock.acquire();
    expect(released.lost).toBeUndefined();
    await released.release();
    expect(released.lost).toBeUndefined();
    const lost = await lock.acquire();
    scene.clock.block(TTL_MS);
    expect(lost.lost).toBe("expired");
    await lost.release();
    expect(lost.lost).toBe("expired");
  });

  test("console.log shows what it is and for how long, and not its token", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ id: "job-1", token: "s3cret" });
    const text = inspect(lease);
    for (const part of ["Lease {", "key: 'k'", "id: 'job-1'", `fence: ${lease.fence}n`, "held: true"])
      expect(text).toContain(part);
    expect(text).toContain(`expiresInMs: ${PROVEN_MS}`);
    expect(text).not.toContain("s3cret");
    scene.clock.block(TTL_MS);
    expect(inspect({ lease })).toMatch(/held: false,\s+expiresInMs: 0/);
  });

  test("a body's value comes back also if the lease was lost meanwhile, and lost says so", async () => {
    const scene = new Scene();
    const result = await scene.locks.mutex("k", { ttlMs: TTL_MS }).run(async (lease) => {
      scene.clock.block(TTL_MS);
      return { value: 42, lost: lease.lost };
    });
    expect(result).toEqual({ value: 42, lost: "expired" });
  });
});

describe("lease: extend", () => {
  test("moves the deadline, also of a lease that does not renew itself", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    await scene.clock.advance(1_000);
    expect(await lease.extend(10_000)).toBe(scene.clock.wallMs() + 9_989);
    expect(lease.expiresAtMs).toBe(scene.clock.wallMs() + 9_989);
    await scene.clock.advance(9_988);
    expect(lease.held).toBe(true);
    await scene.clock.advance(1);
    expect(lease.held).toBe(false);
    expect(scene.sent("renew")).toHaveLength(1);
  });

  test("never shortens", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    const { expiresAtMs } = lease;
    await lease.extend(100);
    expect(lease.expiresAtMs).toBe(expiresAtMs);
    await scene.clock.advance(PROVEN_MS - 1);
    expect(lease.held).toBe(true);
  });

  test("is not undone by the heartbeats that follow", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await lease.extend(20_000);
    await scene.clock.advance(1_000);
    scene.cutOff();
    await scene.clock.advance(18_000);
    expect(lease.held).toBe(true);
  });

  test.each([20_000, TTL_MS])("of %d ms is not done by the answer to an earlier heartbeat", async (ttlMs) => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.faults = ({ verb }) => (verb === "renew" ? { afterMs: 200 } : undefined);
    await scene.clock.advance(1_100);
    const extending = scene.begin(lease.extend(ttlMs));
    await scene.clock.advance(150);
    expect(extending.state).toBe("pending");
    await scene.clock.advance(50);
    expect(extending).toMatchObject({ state: "fulfilled", atMs: 1_300 });
    expect(lease.expiresAtMs).toBeGreaterThan(scene.clock.wallMs() + ttlMs - 300);
  });

  test("is not done by the answer to a shorter one of the same moment", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    scene.faults = ({ verb, count }) => (verb === "renew" && count === 2 ? { afterMs: 100 } : undefined);
    const [shorter, longer] = [scene.begin(lease.extend(10_000)), scene.begin(lease.extend(20_000))];
    await scene.clock.advance(99);
    expect([shorter.state, longer.state]).toEqual(["fulfilled", "pending"]);
    await scene.clock.advance(1);
    expect(longer.state).toBe("fulfilled");
  });

  test("several at once are one heartbeat each, and the longest counts", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    await Promise.all([lease.extend(20_000), lease.extend(10_000)]);
    expect(lease.expiresAtMs).toBe(scene.clock.wallMs() + 19_979);
  });

  test("is done when the store has answered, also one that promises a little less than it was asked for", async () => {
    const scene = new Scene();
    const { backend } = scene;
    const renew = backend.renew.bind(backend);
    // As a store does that counts on a majority, and takes off what the round trip took.
    backend.renew = async (refs) =>
      (await renew(refs)).map((answer) =>
        "expiresInMs" in answer ? { ...answer, expiresInMs: answer.expiresInMs - 100 } : answer,
      );
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const extending = scene.begin(lease.extend(20_000));
    await scene.clock.advance(0);
    expect(extending.state).toBe("fulfilled");
    expect(scene.sent("renew")).toHaveLength(1);
  });

  test("of a lost lease rejects with LEASE_LOST, of a released one with NOT_HELD", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false });
    const lost = await lock.acquire();
    await scene.clock.advance(TTL_MS);
    await expect(lost.extend(TTL_MS)).rejects.toMatchObject({ code: "LEASE_LOST", reason: "expired" });
    const released = await lock.acquire();
    await released.release();
    await expect(released.extend(TTL_MS)).rejects.toMatchObject({ code: "NOT_HELD" });
    expect(scene.sent("renew")).toEqual([]);
  });

  test("rejects when the store says that the lease is gone, or when it is released meanwhile", async () => {
    const scene = new Scene();
    const gone = await scene.locks.mutex("a").acquire();
    await scene.rival().forceRelease("a", gone.id);
    await expect(gone.extend(60_000)).rejects.toMatchObject({ code: "LEASE_LOST", reason: "gone" });
    const lease = await scene.locks.mutex("b").acquire();
    const extending = scene.begin(lease.extend(60_000));
    await lease.release();
    expect(extending).toMatchObject({ state: "rejected", error: { code: "NOT_HELD" } });
  });

  const refusal = new HoldfastError("INVALID_ARGUMENT", "ttlMs must be at least 1001 here.");

  test.each([
    [
      "the whole call",
      (scene: Scene) => {
        scene.faults = () => ({ error: refusal });
      },
    ],
    [
      "this claim alone",
      ({ backend }: Scene) => {
        backend.renew = async (refs) => refs.map(() => ({ state: "failed", error: refusal }));
      },
    ],
  ])(
    "rejects at once when the store refuses %s, and a lease without renewal lasts as it would have",
    async (_, refuse) => {
      const scene = new Scene();
      const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
      const { expiresAtMs } = lease;
      refuse(scene);
      for (const _ of [1, 2, 3]) {
        const extending = scene.begin(lease.extend(500));
        await scene.clock.advance(0);
        expect(extending).toMatchObject({ state: "rejected", error: refusal });
      }
      await scene.clock.advance(PROVEN_MS - 1);
      expect(lease).toMatchObject({ held: true, expiresAtMs });
      await scene.clock.advance(1);
      expect(() => lease.assertHeld()).toThrow(expect.objectContaining({ reason: "expired" }));
      // Nobody was asked in vain, and that the time was up is no outage.
      expect(scene.sent("renew")).toHaveLength(3);
      expect((lease.signal.reason as Error).cause).toBeUndefined();
      expect(scene.locks.stats()).toMatchObject({ storeAvailable: true, outages: 0 });
    },
  );

  test("that the store refuses leaves a lease that renews itself as it was", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    scene.faults = () => ({ error: refusal });
    const extending = scene.begin(lease.extend(20_000));
    await scene.clock.advance(0);
    expect(extending).toMatchObject({ state: "rejected", error: refusal });
    scene.reconnect();
    await scene.clock.advance(60_000);
    expect(lease.held).toBe(true);
  });

  test.each([5, 9, 30, 400])(
    "that the store refuses every %d ms does not keep a lease from renewing itself",
    async (everyMs) => {
      const scene = new Scene();
      const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
      scene.faults = (call) => {
        const isRefused = call.verb === "renew" && call.args[0].some(({ ttlMs = 0 }) => ttlMs > 10_000);
        // An answer takes longer than until the next one is asked for, so there is always one open.
        return isRefused ? { error: refusal, afterMs: 12 } : undefined;
      };
      const outcomes = [];
      for (let atMs = 0; atMs < 3 * TTL_MS; atMs += everyMs) {
        outcomes.push(scene.begin(lease.extend(60_000)));
        await scene.clock.advance(everyMs);
      }
      await scene.clock.advance(100);
      expect(lease.held).toBe(true);
      expect(outcomes.filter(({ error }) => error !== refusal)).toEqual([]);
    },
  );

  test.each([true, false])(
    "that the store refuses does not take a shorter one with it (renew: %s)",
    async (renew) => {
      const scene = new Scene();
      const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew }).acquire();
      scene.faults = (call) =>
        call.verb === "renew" && call.args[0].some(({ ttlMs = 0 }) => ttlMs > 10_000)
          ? { error: refusal }
          : undefined;
      const [longer, shorter] = [scene.begin(lease.extend(20_000)), scene.begin(lease.extend(10_000))];
      await scene.clock.advance(0);
      expect([longer.state, shorter.state]).toEqual(["rejected", renew ? "fulfilled" : "pending"]);
      await scene.clock.advance(100);
      expect(shorter.state).toBe("fulfilled");
      expect(lease.expiresAtMs).toBeGreaterThan(scene.clock.wallMs() + 9_800);
    },
  );

  test.each([
    ["fails", true],
    ["is silent", false],
  ])("rejects after requestTimeoutMs when the store %s, and the lease goes on", async (_, fails) => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    if (fails) scene.refuseCalls();
    else scene.cutOff();
    const extending = scene.begin(lease.extend(20_000));
    await scene.clock.advance(599);
    expect(extending.state).toBe("pending");
    await scene.clock.advance(1);
    expect(extending).toMatchObject({ state: "rejected", error: { code: "STORE_UNAVAILABLE" } });
    scene.reconnect();
    await scene.clock.advance(60_000);
    expect(lease.held).toBe(true);
  });

  test("that failed leaves a lease of fixed length as it was", async () => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    const { expiresAtMs } = lease;
    scene.cutOff();
    const extending = scene.begin(lease.extend(20_000));
    await scene.clock.advance(600);
    expect(extending.state).toBe("rejected");
    scene.reconnect();
    await scene.clock.advance(PROVEN_MS - 601);
    expect(lease.expiresAtMs).toBe(expiresAtMs);
    await scene.clock.advance(1);
    expect(lease.held).toBe(false);
  });
});

describe("lease: maxHoldMs", () => {
  test("ends a lease however well it renews, and lets the next one in", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, maxHoldMs: 10_000 }).acquire();
    const next = scene.begin(scene.rival().mutex("k").acquire());
    expect(lease.expiresAtMs).toBe(scene.clock.wallMs() + PROVEN_MS);
    await scene.clock.advance(9_999);
    expect([lease.held, next.state]).toEqual([true, "pending"]);
    expect(lease.expiresAtMs).toBe(scene.clock.wallMs() + 1);
    await scene.clock.advance(1);
    expect(lease.signal.reason).toMatchObject({ reason: "max-hold" });
    expect(next.value?.held).toBe(true);
    expect(await lease.release()).toBe(false);
  });

  test("counts from the grant, not from when the wait began", async () => {
    const scene = new Scene();
    const holder = await scene.rival().mutex("k").acquire();
    const waiting = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS, maxHoldMs: 10_000 }).acquire());
    await scene.clock.advance(20_000);
    await holder.release();
    await scene.clock.advance(9_999);
    expect(waiting.value?.held).toBe(true);
    await scene.clock.advance(1);
    expect(waiting.value?.held).toBe(false);
  });

  test("is noticed at once after a block", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: 60_000, maxHoldMs: 1_000 }).acquire();
    scene.clock.block(1_000);
    expect(lease.state).toMatchObject({ held: false, lost: "max-hold" });
  });
});

describe("lease: release", () => {
  test("with mustHold throws instead of saying false", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false });
    const lease = await lock.acquire();
    expect(await lease.release({ mustHold: true })).toBe(true);
    await expect(lease.release({ mustHold: true })).rejects.toMatchObject({ code: "NOT_HELD" });
    const lost = await lock.acquire();
    await scene.clock.advance(TTL_MS);
    await expect(lost.release({ mustHold: true })).rejects.toMatchObject({ code: "LEASE_LOST" });
    const forced = await lock.acquire();
    await scene.rival().forceRelease("k", forced.id);
    await expect(forced.release({ mustHold: true })).rejects.toMatchObject({ code: "NOT_HELD" });
  });

  test("is over at once for its holder, before the store confirms", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    scene.faults = ({ verb }) => (verb === "release" ? { afterMs: 100 } : undefined);
    const first = scene.begin(lease.release());
    const second = scene.begin(lease.release());
    expect(lease.held).toBe(false);
    await scene.clock.advance(100);
    expect([first.value, second.value]).toEqual([true, false]);
  });

  test("of a lease that somebody else has by now says false and touches nothing", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const rival = scene.rival();
    await rival.forceRelease("k", lease.id);
    const successor = await rival.mutex("k").acquire();
    expect(await lease.release()).toBe(false);
    expect((await scene.status("k")).held.map(({ id }) => id)).toEqual([successor.id]);
  });
});
