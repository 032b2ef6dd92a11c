import v8 from "node:v8";
import type { Lease, LeaseState } from "holdfast";
import { settled } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { Scene, TTL_MS } from "./scene.ts";

/** Counts what is still referred to. Since Node 20.13; its types do not have it yet. */
const { queryObjects } = v8 as { queryObjects?: (of: unknown, as: { format: "count" }) => number };

/** Collects what a watcher is told, in words. */
function watch(lease: Lease): { readonly told: string[]; ended: boolean } {
  const watcher = { told: [] as string[], ended: false };
  const follow = async () => {
    for await (const state of lease.watch()) watcher.told.push(inWords(state));
    watcher.ended = true;
  };
  void follow();
  return watcher;
}

function inWords({ held, lost, released }: LeaseState): string {
  if (held) return "held";
  return released ? "released" : `lost: ${lost}`;
}

describe("watching a lease", () => {
  test("tells the present state, each renewal, and the release, and then ends", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const watcher = watch(lease);
    await settled();
    expect(watcher.told).toEqual(["held"]);
    await scene.clock.advance(2_000);
    expect(watcher.told).toEqual(["held", "held", "held"]);
    expect(watcher.ended).toBe(false);
    await lease.release();
    await settled();
    expect(watcher).toEqual({ told: ["held", "held", "held", "released"], ended: true });
  });

  test("tells later expiries with each renewal", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const states = lease.watch();
    const first = await states.next();
    await scene.clock.advance(1_000);
    const second = await states.next();
    expect(second.value!.expiresAtMs - first.value!.expiresAtMs).toBe(1_000);
  });

  test("tells a loss with its reason, and then ends", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    const watcher = watch(lease);
    await scene.clock.advance(TTL_MS);
    expect(watcher).toEqual({ told: ["held", "lost: expired"], ended: true });
  });

  test.skipIf(queryObjects === undefined)(
    "leaves nothing behind for each change, also of a shared lease",
    async () => {
      const scene = new Scene();
      const promises = () => queryObjects?.(Promise, { format: "count" }) ?? 0;
      const lease = scene.keep(await scene.locks.mutex("k", { ttlMs: TTL_MS, reentrant: true }).acquire());
      const watcher = watch(lease);
      await settled();
      const before = promises();
      await scene.clock.advance(100_000);
      expect(watcher.told).toHaveLength(101);
      expect(promises() - before).toBeLessThan(50);
      await lease.release();
    },
  );

  test("return ends it also while its next is pending", async () => {
    const scene = new Scene();
    for (const reentrant of [false, true]) {
      const lease = scene.keep(await scene.locks.mutex(`${reentrant}`, { reentrant }).acquire());
      const states = lease.watch();
      await states.next();
      const pending = states.next();
      expect(await states.return()).toEqual({ done: true, value: undefined });
      expect(await pending).toEqual({ done: true, value: undefined });
    }
  });

  test("of a lease that is over tells its end, once", async () => {
    const scene = new Scene();
    const lock = scene.locks.mutex("k", { ttlMs: TTL_MS });
    const released = await lock.acquire();
    await released.release();
    const lost = await lock.acquire();
    scene.clock.block(TTL_MS);
    const watchers = [watch(released), watch(lost)];
    await settled();
    expect(watchers).toEqual([
      { told: ["released"], ended: true },
      { told: ["lost: expired"], ended: true },
    ]);
  });

  test("watchers are independent: one may leave, one may come late, one may be slow", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    const steady = watch(lease);
    const slow = lease.watch();
    await slow.next();
    for await (const state of lease.watch()) {
      expect(state.held).toBe(true);
      break;
    }
    await scene.clock.advance(2_000);
    const late = watch(lease);
    await scene.rival().forceRelease("k", lease.id);
    await scene.clock.advance(1_000);
    expect(steady.told).toEqual(["held", "held", "held", "lost: gone"]);
    expect(late.told).toEqual(["held", "lost: gone"]);
    // It missed what was in between, but not the end.
    expect((await slow.next()).value).toMatchObject({ held: false, lost: "gone" });
    expect((await slow.next()).done).toBe(true);
  });

  test("tells an extension", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, renew: false }).acquire();
    const watcher = watch(lease);
    await settled();
    await lease.extend(10_000);
    await settled();
    expect(watcher.told).toEqual(["held", "held"]);
  });
});
