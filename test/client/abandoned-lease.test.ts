import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createLocks, memoryStore, observe } from "holdfast";
import { ManualClock, settled } from "holdfast/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { collectProcessWarnings } from "./process-warnings.ts";
import { Scene, TTL_MS } from "./scene.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Collects garbage, and lets run what is to run when something was collected. */
async function forget(): Promise<void> {
  for (let round = 0; round < 5; round++) {
    await settled();
    collectGarbage();
    await settled();
  }
}

/** Acquires a lease that nothing refers to afterwards. */
async function dropLease(scene: Scene, options = {}): Promise<void> {
  await scene.locks.mutex("k", { ttlMs: TTL_MS, ...options }).acquire();
}

describe("an abandoned lease", () => {
  test("is reported once, is no longer renewed, and ends with its ttl", async () => {
    const scene = new Scene();
    await dropLease(scene);
    await scene.clock.advance(1_000);
    await forget();
    expect(scene.warnings).toMatchObject([{ code: "UNRELEASED_LEASE", key: "k" }]);
    expect(scene.locks.stats()).toMatchObject({ held: 0, lost: 1, unreleased: 1 });
    const renewals = scene.sent("renew").length;
    expect((await scene.status("k")).heldCount).toBe(1);
    await scene.clock.advance(TTL_MS);
    await forget();
    expect(scene.sent("renew")).toHaveLength(renewals);
    expect((await scene.status("k")).heldCount).toBe(0);
    expect(scene.warnings).toHaveLength(1);
  });

  test("is told to the process by name while there are few, and to listeners in any case", async () => {
    // What others have dropped in this process is told before.
    await forget();
    const told = collectProcessWarnings();
    const events: unknown[] = [];
    onTestFinished(observe({ warning: ({ code, key }) => events.push(`${code} ${key}`) }));
    const clock = new ManualClock();
    const locks = createLocks(memoryStore({ clock }), { clock });
    const keys = Array.from({ length: 1_000 }, (_, index) => `k${index}`);
    const drop = async () => {
      for (const key of keys) await locks.mutex(key, { ttlMs: TTL_MS }).acquire();
    };
    await drop();
    await clock.advance(1_000);
    await forget();
    expect(events.sort()).toEqual(keys.map((key) => `UNRELEASED_LEASE ${key}`).sort());
    expect(told.map(({ code }) => code)).toEqual(Array(5).fill("UNRELEASED_LEASE"));
    for (const { message } of told) expect(message).toMatch(/A lease on "k\d+" was garbage-collected/);
    await clock.advance(10_000);
    expect(told.slice(5).map(({ message }) => message)).toEqual([expect.stringContaining("995 more")]);
  });

  test("is not won again", async () => {
    const scene = new Scene();
    await dropLease(scene, { reacquire: true });
    await scene.clock.advance(1_000);
    await forget();
    await scene.clock.advance(60_000);
    expect(scene.sent("acquire")).toHaveLength(1);
    expect((await scene.status("k")).heldCount).toBe(0);
  });

  test("aborts the signal that somebody still listens to", async () => {
    const scene = new Scene();
    const { signal } = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.clock.advance(1_000);
    await forget();
    expect(signal.reason).toMatchObject({ code: "LEASE_LOST", reason: "abandoned" });
  });
});

describe("a lease that is not abandoned is not reported", () => {
  test("when it was released", async () => {
    const scene = new Scene();
    const release = async () => {
      const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
      await scene.clock.advance(1_000);
      await lease.release();
    };
    await release();
    await forget();
    expect(scene.warnings).toEqual([]);
    expect(scene.locks.stats().unreleased).toBe(0);
  });

  test("while a body runs that does not look at it", async () => {
    const scene = new Scene();
    await scene.locks.mutex("k", { ttlMs: TTL_MS }).run(async () => {
      await scene.clock.advance(2_000);
      await forget();
      await scene.clock.advance(TTL_MS);
      expect((await scene.status("k")).heldCount).toBe(1);
    });
    expect(scene.warnings).toEqual([]);
  });

  test("while a body runs that has a group of them", async () => {
    const scene = new Scene();
    const group = scene.locks.all(["a", "b"].map((key) => scene.locks.mutex(key, { ttlMs: TTL_MS })));
    await group.run(async () => {
      await scene.clock.advance(2_000);
      await forget();
    });
    expect(scene.warnings).toEqual([]);
  });

  test("while somebody watches it", async () => {
    const scene = new Scene();
    const states: boolean[] = [];
    const watch = async () => {
      const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
      for await (const { held } of lease.watch()) states.push(held);
    };
    void watch();
    await scene.clock.advance(2_000);
    await forget();
    await scene.clock.advance(10_000);
    expect(scene.warnings).toEqual([]);
    expect(states.length).toBeGreaterThan(10);
  });

  test("when it was lost before", async () => {
    const scene = new Scene();
    await dropLease(scene, { renew: false });
    await scene.clock.advance(TTL_MS);
    await forget();
    expect(scene.warnings).toEqual([]);
  });
});
