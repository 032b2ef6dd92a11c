import { type OtelOptions, otelInstrumentation } from "holdfast/otel";
import { describe, expect, onTestFinished, test } from "vitest";
import { Scene, TTL_MS } from "../../client/scene.ts";
import { startTelemetry } from "./otel-sdk.ts";

function start(options: OtelOptions = {}) {
  const telemetry = startTelemetry();
  const { meterProvider } = telemetry;
  const stop = otelInstrumentation({ meterProvider, traces: false, ...options });
  onTestFinished(stop);
  return { ...telemetry, stop };
}

describe("metrics", () => {
  test("tell how long calls took, by how they ended, in seconds", async () => {
    const { metric } = start();
    const scene = new Scene({ requestTimeoutMs: 600 });
    const rival = await scene.rival().mutex("k").acquire();
    await scene.locks.mutex("k").tryAcquire();
    scene.begin(scene.locks.mutex("k").acquire());
    scene.begin(scene.locks.mutex("k").acquire({ waitMs: 30 }));
    await scene.clock.advance(40);
    await rival.release();
    await scene.clock.advance(0);
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("other").acquire());
    await scene.clock.advance(600);
    const { unit, points } = await metric("holdfast.client.acquire.duration");
    expect(unit).toBe("s");
    expect(points).toMatchObject({
      "memory granted": { count: 2, sum: 0.04 },
      "memory contended": { count: 1 },
      "memory timeout ACQUIRE_TIMEOUT": { count: 1, sum: 0.03 },
      "memory failed STORE_UNAVAILABLE": { count: 1, sum: 0.6 },
    });
    expect(points["memory granted"]).toMatchObject({
      buckets: { boundaries: expect.arrayContaining([0.0001, 0.05, 3_600]) },
    });
  });

  test("tell how long leases were held, and why they ended", async () => {
    const { metric } = start();
    const scene = new Scene();
    const lease = await scene.locks.mutex("a").acquire();
    await scene.clock.advance(20);
    await lease.release();
    (await scene.locks.mutex("b").acquire()).detach();
    scene.keep(await scene.locks.mutex("c", { ttlMs: TTL_MS, renew: false }).acquire());
    const gone = await scene.locks.mutex("d").acquire();
    await scene.rival().forceRelease("d", gone.id);
    await gone.release();
    await scene.clock.advance(TTL_MS);
    expect((await metric("holdfast.client.hold.duration")).points).toMatchObject({
      "memory released": { count: 1, sum: 0.02 },
      "memory detached": { count: 1 },
      "memory lost expired LEASE_LOST": { count: 1 },
      "memory lost gone LEASE_LOST": { count: 1 },
    });
  });

  test("tell what is held and what waits now, and nothing once they are stopped", async () => {
    const { metric, stop } = start();
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    scene.begin(scene.locks.mutex("k").acquire());
    await scene.clock.advance(0);
    const { unit, points } = await metric("holdfast.client.claim.count");
    expect(unit).toBe("{claim}");
    expect(points).toEqual({ "memory held": 1, "memory waiting": 1 });
    await lease.release();
    await scene.clock.advance(0);
    expect((await metric("holdfast.client.claim.count")).points).toEqual({
      "memory held": 1,
      "memory waiting": 0,
    });
    stop();
    expect((await metric("holdfast.client.claim.count")).points).toEqual({
      "memory held": 0,
      "memory waiting": 0,
    });
  });

  test("tell of heartbeats, outages, warnings and releases by force", async () => {
    const { metric } = start();
    const scene = new Scene({ requestTimeoutMs: 600 });
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await scene.clock.advance(1_000);
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("other", { onUnavailable: "skip" }).tryAcquire());
    await scene.clock.advance(1_000);
    scene.reconnect();
    await scene.clock.advance(0);
    await scene.locks.forceRelease("k", lease.id);
    expect((await metric("holdfast.client.renewals")).points).toMatchObject({
      "memory confirmed": 1,
      "memory failed STORE_UNAVAILABLE": 1,
    });
    expect((await metric("holdfast.client.outages")).points).toEqual({ memory: 1 });
    expect((await metric("holdfast.client.warnings")).points).toEqual({ "memory SKIPPED_UNAVAILABLE": 1 });
    expect((await metric("holdfast.client.force_releases")).points).toEqual({ memory: 1 });
  });

  test("name no key, unless there is a label for it", async () => {
    const { metric } = start({ metricKey: (key) => key.split(":")[0] ?? "" });
    await new Scene().locks.mutex("account:7").acquire();
    expect(Object.keys((await metric("holdfast.client.acquire.duration")).points)).toEqual([
      "memory account granted",
    ]);
  });
});
