import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

describe("claim id: within a client", () => {
  test("one that is in use on the key is refused, and the first claim is unharmed", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS });
    const lease = await lock.acquire({ id: "job-1" });
    await expect(lock.tryAcquire({ id: "job-1" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      key: "k",
      message: expect.stringContaining('id "job-1" is in use'),
    });
    expect(scene.sent("acquire")).toHaveLength(1);
    await scene.clock.advance(60_000);
    expect(lease.held).toBe(true);
    // The refused call must not have freed the name either.
    await expect(lock.tryAcquire({ id: "job-1" })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("one that waits is in use as well", async () => {
    const scene = new Scene();
    scene.keep(await scene.rival().mutex("k").acquire());
    const lock = scene.locks.mutex("k");
    scene.begin(lock.acquire({ id: "job-1" }));
    await scene.clock.advance(0);
    await expect(lock.acquire({ id: "job-1" })).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("the same one on another key is another claim", async () => {
    const scene = new Scene();
    const a = await scene.locks.mutex("a").acquire({ id: "job-1" });
    const b = await scene.locks.mutex("b").acquire({ id: "job-1" });
    expect([a.held, b.held]).toEqual([true, true]);
  });

  test.each([
    [
      "released",
      async (scene: Scene) => void (await scene.locks.mutex("k").acquire({ id: "job-1" })).release(),
    ],
    [
      "lost",
      async (scene: Scene) => {
        scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire({ id: "job-1" }));
        await scene.clock.advance(TTL_MS);
      },
    ],
    [
      "refused",
      async (scene: Scene) => {
        const holder = await scene.rival().mutex("k").acquire();
        await scene.locks.mutex("k").tryAcquire({ id: "job-1" });
        await holder.release();
      },
    ],
    [
      "timed out",
      async (scene: Scene) => {
        const holder = await scene.rival().mutex("k").acquire();
        scene.begin(scene.locks.mutex("k").acquire({ id: "job-1", waitMs: 100 }));
        await scene.clock.advance(100);
        await holder.release();
      },
    ],
  ])("one that was %s can be used again", async (_, use) => {
    const scene = new Scene();
    await use(scene);
    await scene.clock.advance(0);
    const lease = await scene.locks.mutex("k").tryAcquire({ id: "job-1" });
    expect(lease?.held).toBe(true);
  });
});

describe("claim id: across clients", () => {
  test("one that names a claim with other parameters is refused, and that claim is unharmed", async () => {
    const scene = new Scene();
    const lease = await scene.rival().semaphore("k", 4).acquire({ id: "job-1", permits: 2 });
    const { fence } = lease;
    const attempts = [
      scene.locks.semaphore("k", 4).tryAcquire({ id: "job-1", permits: 1 }),
      scene.locks.semaphore("k", 5).acquire({ id: "job-1", permits: 2 }),
      scene.locks.mutex("other").acquire({ id: "job-1" }),
      scene.locks.semaphore("k", 4).acquire({ id: "job-1", permits: 2, priority: 1 }),
    ];
    const codes = await Promise.all(
      attempts.map((attempt) =>
        attempt.then(
          () => "held",
          (error) => error.code,
        ),
      ),
    );
    expect(codes).toEqual(["INVALID_ARGUMENT", "INVALID_ARGUMENT", "held", "INVALID_ARGUMENT"]);
    expect((await scene.status("k")).held).toMatchObject([{ id: "job-1", weight: 2, fence }]);
    await scene.clock.advance(60_000);
    expect(lease.held).toBe(true);
  });

  test("a takeover has a higher fence, and the former holder loses at its next heartbeat", async () => {
    const scene = new Scene();
    const former = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ id: "job-1" });
    const { signal } = former;
    const taker = await scene.rival().mutex("k").acquire({ id: "job-1" });
    expect(taker.fence).toBeGreaterThan(former.fence);
    await scene.clock.advance(999);
    expect(former.held).toBe(true);
    await scene.clock.advance(1);
    expect(former.held).toBe(false);
    expect(signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "taken-over" });
    expect(await former.release()).toBe(false);
    await scene.clock.advance(60_000);
    expect(taker.held).toBe(true);
  });

  test("nobody else is let in before the former holder's time is up", async () => {
    const scene = new Scene();
    const former = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire({ id: "job-1" });
    const rival = scene.rival();
    await scene.clock.advance(1_000);
    const taker = await rival.mutex("k").acquire({ id: "job-1" });
    await taker.release();
    const next = scene.begin(rival.mutex("k").acquire());
    await scene.clock.advance(1_900);
    expect([former.held, next.state]).toEqual([true, "pending"]);
    await scene.clock.advance(101);
    expect(former.held).toBe(false);
    expect(next.value?.held).toBe(true);
  });

  test("a waiting claim that another client takes over is given up, not taken back", async () => {
    const scene = new Scene();
    const holder = await scene.rival().mutex("k").acquire();
    const robbed = scene.begin(scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire({ id: "job-1" }));
    await scene.clock.advance(0);
    const taking = scene.begin(scene.rival().mutex("k").acquire({ id: "job-1" }));
    await scene.clock.advance(1_000);
    expect(robbed).toMatchObject({ state: "rejected", error: { code: "INVALID_ARGUMENT", key: "k" } });
    await holder.release();
    await scene.clock.advance(0);
    expect(taking.value?.held).toBe(true);
  });
});
