/** docs/observability.md leaves nothing out that there is to see. */
import { createLocks, observe } from "holdfast";
import { prometheusMetrics } from "holdfast/prometheus";
import { Registry } from "prom-client";
import { expect, onTestFinished, test } from "vitest";
import { read } from "./source-tree.ts";

const page = read("docs/observability.md");

function undocumented(names: readonly string[]): string[] {
  expect(names.length).toBeGreaterThan(0);
  return names.filter((name) => !page.includes(`\`${name}\``));
}

test("explains every kind of event", () => {
  let kinds: string[] = [];
  try {
    observe({ "no such kind": () => {} } as never);
  } catch (error) {
    kinds = /Its events are (.*)\.$/.exec((error as Error).message)?.[1]?.split(", ") ?? [];
  }
  expect(undocumented(kinds)).toEqual([]);
});

test("explains every count of stats()", async () => {
  const locks = createLocks();
  expect(undocumented(Object.keys(locks.stats()))).toEqual([]);
  await locks.close();
});

test("explains every metric of Prometheus", () => {
  const register = new Registry();
  const stop = prometheusMetrics({ register });
  onTestFinished(stop);
  expect(undocumented(register.getMetricsAsArray().map(({ name }) => name))).toEqual([]);
});

test("explains every metric and attribute of OpenTelemetry", () => {
  const metrics = [...read("src/integrations/otel/metering.ts").matchAll(/"(holdfast\.client\.[\w.]+)"/g)];
  const attributes = [...read("src/integrations/otel/attributes.ts").matchAll(/: "([\w.]+)",$/gm)];
  expect(undocumented([...metrics, ...attributes].map(([, name = ""]) => name))).toEqual([]);
});
