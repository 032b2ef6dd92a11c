/** Several things that a lease asks for at once, of which the store does some and not others. */
import { HoldfastError, StoreUnavailableError } from "holdfast";
import { describe, expect, test } from "vitest";
import { Scene } from "./scene.ts";

const HOUR_MS = 3_600_000;
const refusal = new HoldfastError("INVALID_ARGUMENT", "ttlMs must be at most 3600000 on this server.");

/** Refuses what asks for more than an hour, after 5 ms. Everything else is answered after 2 ms, or never. */
function refuseOverAnHour(scene: Scene, others: "answered" | "silent" = "answered"): void {
  scene.faults = (call) => {
    if (call.verb !== "renew") return undefined;
    if (call.args[0].some(({ ttlMs = 0 }) => ttlMs > HOUR_MS)) return { error: refusal, afterMs: 5 };
    return others === "answered" ? { afterMs: 2 } : { lose: "request", hang: true };
  };
}

describe("extensions: one that the store refuses", () => {
  // (1) The first asks for two hours. (2) The second sends a heartbeat of its own, which asks for as much: the longest that is open. (3) The first
  // heartbeat is refused, and with it the first extension. (4) The second one is refused, for nobody who is still there.
  test("does not keep another one from being granted that was asked for meanwhile", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: 30_000 }).acquire();
    refuseOverAnHour(scene);
    const tooLong = scene.begin(lease.extend(2 * HOUR_MS));
    await scene.clock.advance(3);
    const fine = scene.begin(lease.extend(60_000));
    await scene.clock.advance(10_000);
    expect(tooLong).toMatchObject({ state: "rejected", error: refusal });
    expect(fine).toMatchObject({ state: "fulfilled" });
    expect(scene.locks.stats()).toMatchObject({ outages: 0, storeAvailable: true });
  });

  test("does not put off the next one", async () => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: 30_000 }).acquire();
    refuseOverAnHour(scene);
    const refused = [scene.begin(lease.extend(2 * HOUR_MS)), scene.begin(lease.extend(2 * HOUR_MS))];
    await scene.clock.advance(1_000);
    expect(refused.map(({ error }) => error)).toEqual([refusal, refusal]);
    const fine = scene.begin(lease.extend(60_000));
    await scene.clock.advance(10_000);
    expect(fine).toMatchObject({ state: "fulfilled", atMs: 1_002 });
  });

  // Of two, the first refusal is told to both, and the second one to nobody.
  test.each([1, 2])("%d: is not what a lease is lost for in an outage that follows", async (count) => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: 3_000 }).acquire();
    const { signal } = lease;
    refuseOverAnHour(scene, "silent");
    const tooLong = Array.from({ length: count }, () => scene.begin(lease.extend(2 * HOUR_MS)));
    await scene.clock.advance(3_000);
    for (const { error } of tooLong) expect(error).toBe(refusal);
    expect(signal.reason).toMatchObject({ reason: "expired", cause: { code: "STORE_UNAVAILABLE" } });
    expect(scene.locks.stats()).toMatchObject({ storeAvailable: false, outages: 1 });
  });

  test.each([
    ["after its refusal", 6],
    ["before that", 3],
  ])("is not what another one fails for in an outage that follows, asked for %s", async (_, afterMs) => {
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: 30_000 }).acquire();
    refuseOverAnHour(scene, "silent");
    const tooLong = scene.begin(lease.extend(2 * HOUR_MS));
    await scene.clock.advance(afterMs);
    const fine = scene.begin(lease.extend(60_000));
    await scene.clock.advance(5_100);
    expect(tooLong.error).toBe(refusal);
    expect(fine.error).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect((fine.error as Error).message).not.toContain("3600000");
  });
});

// (1) A heartbeat is under way. (2) That of an extension is lost. (3) The first is answered, so that the next is due in 10 s. (4) The extension has 5 s.
test("extensions: one whose heartbeat was lost is asked for again, also where another one is answered", async () => {
  const scene = new Scene();
  const lease = await scene.locks.mutex("k", { ttlMs: 30_000 }).acquire();
  scene.faults = (call) => {
    if (call.verb !== "renew") return undefined;
    if (call.count === 1) return { afterMs: 200 };
    return call.count === 2 ? { lose: "request", hang: true } : undefined;
  };
  await scene.clock.advance(10_100);
  expect(scene.sent("renew")).toHaveLength(1);
  const extending = scene.begin(lease.extend(60_000));
  await scene.clock.advance(4_999);
  expect(extending).toMatchObject({ state: "fulfilled" });
});

test("extensions: one that the store cannot serve does not cost a lease that it would renew", async () => {
  const scene = new Scene();
  const lease = await scene.locks.mutex("k", { ttlMs: 3_000 }).acquire();
  scene.faults = (call) =>
    call.verb === "renew" && call.args[0].some(({ ttlMs = 0 }) => ttlMs > 3_000)
      ? { error: new StoreUnavailableError("There is no lease of that length just now.") }
      : undefined;
  const extending = scene.begin(lease.extend(60_000));
  await scene.clock.advance(6_000);
  expect(extending.error).toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(lease.held).toBe(true);
  // Told once, when the extension was given up; the store has served the lease all the while.
  expect(scene.locks.stats().outages).toBe(1);
});
