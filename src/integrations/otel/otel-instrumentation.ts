import { type MeterProvider, metrics, type TracerProvider, trace } from "@opentelemetry/api";
import { checkKeyLabel, type KeyLabel, observe } from "../../client/index.ts";
import { checkBoolean, checkOptionNames, invalid, type Unsubscribe } from "../../store/index.ts";
import { Metering } from "./metering.ts";
import { Tracing } from "./tracing.ts";

export interface OtelOptions {
  /** Whether spans are made. Default true. */
  readonly traces?: boolean;
  /** Whether metrics are recorded. Default true. */
  readonly metrics?: boolean;
  /** Where spans go. Default: the global tracer provider. */
  readonly tracerProvider?: TracerProvider;
  /** Where metrics go. Default: the global meter provider, which has to be set up before this is called. */
  readonly meterProvider?: MeterProvider;
  /**
   * What the attribute `holdfast.key` of spans says, if not the key itself: `false` leaves it out, a function makes a label of it.
   * Messages of errors, which name keys, are then left out of spans. Default: the key.
   */
  readonly spanKey?: KeyLabel;
  /**
   * Whether metrics have an attribute `holdfast.key`: a function makes it of each key. Every value is a time series of its own, so
   * make few of them. Default `false`: there is no such attribute.
   */
  readonly metricKey?: KeyLabel;
}

/** The name of the instrumentation scope. */
const SCOPE = "holdfast";

/**
 * Makes spans and metrics of what all clients of this process do, through the API of OpenTelemetry. Returns what ends that,
 * and the spans that are open with it.
 *
 * @example
 * const stop = otelInstrumentation({ spanKey: (key) => key.split(":")[0] });
 */
export function otelInstrumentation(options: OtelOptions = {}): Unsubscribe {
  checkOptionNames("otelInstrumentation", options, {
    traces: true,
    metrics: true,
    tracerProvider: true,
    meterProvider: true,
    spanKey: true,
    metricKey: true,
  });
  const { tracerProvider = trace, meterProvider = metrics } = options;
  checkProvider("tracerProvider", tracerProvider, "getTracer");
  checkProvider("meterProvider", meterProvider, "getMeter");
  const spanKey = options.spanKey === undefined ? undefined : checkKeyLabel("spanKey", options.spanKey);
  const metricKey = checkKeyLabel("metricKey", options.metricKey ?? false);
  const stops: Unsubscribe[] = [];
  if (checkBoolean("traces", options.traces ?? true)) {
    const tracing = new Tracing(tracerProvider.getTracer(SCOPE), spanKey);
    stops.push(observe(tracing.handlers), () => tracing.end());
  }
  if (checkBoolean("metrics", options.metrics ?? true)) {
    const metering = new Metering(meterProvider.getMeter(SCOPE), metricKey);
    stops.push(observe(metering.handlers), () => metering.end());
  }
  return () => {
    for (const stop of stops.splice(0)) stop();
  };
}

function checkProvider(name: string, provider: object, method: string): void {
  if (typeof (provider as Record<string, unknown> | null)?.[method] === "function") return;
  throw invalid(`${name} must have the method ${method}, as those of OpenTelemetry have.`);
}
