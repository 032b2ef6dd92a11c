import { context, SpanStatusCode, trace } from "@opentelemetry/api";
import { type OtelOptions, otelInstrumentation } from "holdfast/otel";
import { describe, expect, onTestFinished, test } from "vitest";
import { Scene, TTL_MS } from "../../client/scene.ts";
import { startTelemetry } from "./otel-sdk.ts";

function start(options: OtelOptions = {}) {
  const telemetry = startTelemetry();
  const { tracerProvider } = telemetry;
  const stop = otelInstrumentation({ tracerProvider, metrics: false, ...options });
  onTestFinished(stop);
  return { ...telemetry, stop };
}

describe("spans", () => {
  test("tell of asking and of holding, with a link each way and the caller's span above both", async () => {
    const { tracerProvider, spans } = start();
    const { locks } = new Scene({ application: "billing" });
    const caller = tracerProvider.getTracer("app").startSpan("request");
    const lease = await context.with(trace.setSpan(context.active(), caller), () =>
      locks.mutex("k").acquire(),
    );
    expect(spans("holdfast.hold")).toEqual([]);
    await lease.release();

    const [asking] = spans("holdfast.acquire");
    const [holding] = spans("holdfast.hold");
    expect(asking?.parentSpanContext?.spanId).toBe(caller.spanContext().spanId);
    expect(holding?.parentSpanContext?.spanId).toBe(caller.spanContext().spanId);
    expect(holding?.links.map((link) => link.context.spanId)).toEqual([asking?.spanContext().spanId]);
    expect(asking?.links.map((link) => link.context.spanId)).toEqual([holding?.spanContext().spanId]);
    expect(asking?.attributes).toEqual({
      "holdfast.store": "memory",
      "holdfast.key": "k",
      "holdfast.claim.id": lease.id,
      "holdfast.owner": locks.owner,
      "holdfast.application": "billing",
      "holdfast.weight": 1,
      "holdfast.priority": 0,
      "holdfast.ttl_ms": 30_000,
      "holdfast.fence": String(lease.fence),
      "holdfast.outcome": "granted",
    });
    expect(holding?.attributes).toMatchObject({ "holdfast.outcome": "released" });
    expect(holding?.status.code).toBe(SpanStatusCode.UNSET);
  });

  test("two callers at once each have their own", async () => {
    const { tracerProvider, spans } = start();
    const { locks } = new Scene();
    const tracer = tracerProvider.getTracer("app");
    const call = (name: string) => {
      const span = tracer.startSpan(name);
      return context.with(trace.setSpan(context.active(), span), async () => {
        await locks.mutex("k").run(() => {});
        return span.spanContext().traceId;
      });
    };
    const traceIds = await Promise.all([call("one"), call("two")]);
    expect(spans("holdfast.hold").map((span) => span.spanContext().traceId)).toEqual(traceIds);
    expect(spans("holdfast.acquire").map((span) => span.events.map(({ name }) => name))).toEqual([
      [],
      ["waiting"],
    ]);
  });

  test.each([
    ["contended", SpanStatusCode.UNSET, undefined, (scene: Scene) => scene.locks.mutex("k").tryAcquire()],
    [
      "timeout",
      SpanStatusCode.ERROR,
      "ACQUIRE_TIMEOUT",
      (scene: Scene) => scene.locks.mutex("k").acquire({ waitMs: 10 }),
    ],
    [
      "cancelled",
      SpanStatusCode.UNSET,
      undefined,
      (scene: Scene) => {
        const controller = new AbortController();
        scene.clock.setTimer(5, () => controller.abort());
        return scene.locks.mutex("k").acquire({ signal: controller.signal });
      },
    ],
    [
      "failed",
      SpanStatusCode.ERROR,
      "STORE_UNAVAILABLE",
      (scene: Scene) => {
        scene.refuseCalls();
        return scene.locks.mutex("k").acquire();
      },
    ],
  ])("say how asking ended that got nothing: %s", async (outcome, status, errorType, call) => {
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.keep(await scene.rival().mutex("k").acquire());
    const { spans } = start();
    scene.begin<unknown>(call(scene));
    await scene.clock.advance(600);
    const [asking] = spans("holdfast.acquire");
    expect(asking?.attributes["holdfast.outcome"]).toBe(outcome);
    expect(asking?.attributes["error.type"]).toBe(errorType);
    expect(asking?.status.code).toBe(status);
  });

  test("say why a lease was lost, and what went wrong before", async () => {
    const { spans } = start();
    const scene = new Scene();
    const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS }).acquire();
    await lease.extend(5_000);
    scene.refuseCalls();
    await scene.clock.advance(6_000);
    const [holding] = spans("holdfast.hold");
    expect(holding?.attributes).toMatchObject({
      "holdfast.outcome": "lost",
      "holdfast.reason": "expired",
      "error.type": "LEASE_LOST",
    });
    expect(holding?.status).toMatchObject({
      code: SpanStatusCode.ERROR,
      message: expect.stringContaining('"k"'),
    });
    const events = new Set(holding?.events.map(({ name }) => name));
    expect(events).toEqual(new Set(["extended", "renewal-failed", "exception"]));
  });

  test("of a lease that was gone when it was released say that it was lost", async () => {
    const { spans } = start();
    const scene = new Scene();
    const lease = await scene.locks.mutex("k").acquire();
    await scene.rival().forceRelease("k", lease.id);
    await lease.release();
    expect(spans("holdfast.hold")[0]?.attributes).toMatchObject({ "holdfast.reason": "gone" });
  });

  test("of a lease that is won again are in no caller's trace", async () => {
    const { tracerProvider, spans } = start();
    const scene = new Scene();
    const caller = tracerProvider.getTracer("app").startSpan("request");
    await context.with(trace.setSpan(context.active(), caller), async () => {
      const lease = await scene.locks.mutex("k", { ttlMs: TTL_MS, reacquire: true }).acquire();
      await scene.rival().forceRelease("k", lease.id);
      await scene.clock.advance(1_000);
    });
    const parents = spans("holdfast.acquire").map((span) => span.parentSpanContext?.spanId);
    expect(parents).toEqual([caller.spanContext().spanId, undefined]);
  });

  test.each([
    ["left out", false as const, undefined],
    ["replaced by a label", (key: string) => key.slice(0, 3), "sec"],
  ])("can have the key %s, and then say it nowhere", async (_, spanKey, told) => {
    const { spans } = start({ spanKey });
    const scene = new Scene({ requestTimeoutMs: 600 });
    scene.keep(await scene.locks.mutex("secret", { ttlMs: TTL_MS, renew: false }).acquire());
    await scene.clock.advance(TTL_MS);
    scene.refuseCalls();
    scene.begin(scene.locks.mutex("secret").acquire());
    await scene.clock.advance(600);
    const all = [...spans("holdfast.acquire"), ...spans("holdfast.hold")];
    expect(all).toHaveLength(3);
    for (const { attributes, status, events } of all) {
      expect(attributes["holdfast.key"]).toBe(told);
      expect(JSON.stringify([attributes, status, events])).not.toContain("secret");
    }
  });

  test("that are open end when the instrumentation is stopped, and none are made after that", async () => {
    const { spans, stop } = start();
    const { locks } = new Scene();
    const lease = await locks.mutex("k").acquire();
    stop();
    stop();
    expect(spans("holdfast.hold")).toHaveLength(1);
    await lease.release();
    await locks.mutex("k").acquire();
    expect(spans("holdfast.acquire")).toHaveLength(1);
  });

  test("without an SDK nothing is recorded, and locks work", async () => {
    onTestFinished(otelInstrumentation());
    expect(await new Scene().locks.mutex("k").run(() => "ran")).toBe("ran");
  });

  test.each([
    ["tracerProvider", { tracerProvider: {} as never }],
    ["meterProvider", { meterProvider: null as never }],
    ["traces", { traces: "no" as never }],
    ["spanKey", { spanKey: true as never }],
    ["metricKey", { metricKey: "store" as never }],
    ["metricsKey", { metricsKey: false } as never],
  ])("a %s of the wrong kind is refused", (name, options) => {
    expect(() => otelInstrumentation(options)).toThrow(name);
  });
});
