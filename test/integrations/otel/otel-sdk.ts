/** The SDK of OpenTelemetry, with exporters that keep everything in memory. */
import { AsyncLocalStorage } from "node:async_hooks";
import { type Context, type ContextManager, context, ROOT_CONTEXT } from "@opentelemetry/api";
import {
  AggregationTemporality,
  type DataPoint,
  type Histogram,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
} from "@opentelemetry/sdk-trace-base";
import { onTestFinished } from "vitest";

/** Follows calls across promises, as the context manager of the Node SDK does. */
class StorageContextManager implements ContextManager {
  readonly #storage = new AsyncLocalStorage<Context>();

  active(): Context {
    return this.#storage.getStore() ?? ROOT_CONTEXT;
  }

  with<A extends unknown[], F extends (...args: A) => ReturnType<F>>(
    active: Context,
    fn: F,
    thisArg?: ThisParameterType<F>,
    ...args: A
  ): ReturnType<F> {
    return this.#storage.run(active, () => fn.call(thisArg, ...args));
  }

  bind<T>(_context: Context, target: T): T {
    return target;
  }

  enable(): this {
    return this;
  }

  disable(): this {
    this.#storage.disable();
    return this;
  }
}

export interface Telemetry {
  readonly tracerProvider: BasicTracerProvider;
  readonly meterProvider: MeterProvider;
  /** The spans that have ended, of this name. */
  spans(name: string): ReadableSpan[];
  /** The unit of a metric, and its points by the values of their attributes. */
  metric(name: string): Promise<{ unit: string; points: Record<string, number | Histogram> }>;
}

export function startTelemetry(): Telemetry {
  context.setGlobalContextManager(new StorageContextManager());
  const spanExporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spanExporter)] });
  const metricExporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter: metricExporter });
  const meterProvider = new MeterProvider({ readers: [reader] });
  onTestFinished(async () => {
    context.disable();
    await tracerProvider.shutdown();
    await meterProvider.shutdown();
  });
  return {
    tracerProvider,
    meterProvider,
    spans: (name) => spanExporter.getFinishedSpans().filter((span) => span.name === name),
    async metric(name) {
      await meterProvider.forceFlush();
      const latest = metricExporter.getMetrics().at(-1);
      const found = latest?.scopeMetrics
        .flatMap(({ metrics }) => metrics)
        .find(({ descriptor }) => descriptor.name === name);
      const points = (found?.dataPoints ?? []) as DataPoint<number | Histogram>[];
      return {
        unit: found?.descriptor.unit ?? "",
        points: Object.fromEntries(
          points.map(({ attributes, value }) => [Object.values(attributes).join(" "), value]),
        ),
      };
    },
  };
}
