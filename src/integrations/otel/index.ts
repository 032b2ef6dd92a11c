export { type OtelOptions, otelInstrumentation } from "./otel-instrumentation.ts";
