/** Who can listen while cycles are measured. Each starts listening and returns what ends that. */
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from "@opentelemetry/sdk-metrics";
import { BasicTracerProvider, type ReadableSpan, type SpanProcessor } from "@opentelemetry/sdk-trace-base";
import { observe } from "holdfast";
import { otelInstrumentation } from "holdfast/otel";
import { prometheusMetrics } from "holdfast/prometheus";
import { Registry } from "prom-client";

export interface Listener {
  readonly name: string;
  /** What it has to be: a multiple of what a cycle costs without anybody listening. */
  readonly atMost?: number;
  readonly listen: () => () => void;
}

/** Makes spans in full and lets go of them, so that no exporter is measured. */
class Discard implements SpanProcessor {
  spans = 0;

  onStart(): void {}

  onEnd(_span: ReadableSpan): void {
    this.spans++;
  }

  async forceFlush(): Promise<void> {}

  async shutdown(): Promise<void> {}
}

const nothing = () => {};

export const listeners: readonly Listener[] = [
  // The same on both sides: what else than noise there is between two measurements of one thing.
  { name: "nobody", atMost: 1.05, listen: () => nothing },
  {
    name: "a listener to grants, releases and losses",
    listen() {
      const counts = { granted: 0, released: 0, lost: 0 };
      return observe({
        granted: () => void counts.granted++,
        released: () => void counts.released++,
        lost: () => void counts.lost++,
      });
    },
  },
  { name: "prometheusMetrics", listen: () => prometheusMetrics({ register: new Registry() }) },
  { name: "otelInstrumentation without an SDK", listen: () => otelInstrumentation() },
  {
    name: "otelInstrumentation, metrics of the SDK",
    listen() {
      const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
      // Read so seldom that none of it falls into a measurement.
      const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
      const meterProvider = new MeterProvider({ readers: [reader] });
      const stop = otelInstrumentation({ meterProvider, traces: false });
      return () => {
        stop();
        void meterProvider.shutdown();
      };
    },
  },
  {
    name: "otelInstrumentation, spans of the SDK",
    listen() {
      const tracerProvider = new BasicTracerProvider({ spanProcessors: [new Discard()] });
      return otelInstrumentation({ tracerProvider, metrics: false });
    },
  },
];
