/** The alerts: they are about metrics that a server really has, and somebody says what to do about each of them. */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { startLockServer } from "../server/lock-server.ts";
import { read, root } from "../source-tree.ts";

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly description: string };
}

const path = "deploy/prometheus-rules.yml";
const { groups } = parse(read(path)) as { groups: { name: string; rules: Rule[] }[] };
const rules = groups.flatMap((group) => group.rules);

/** Words of the query language, and what Prometheus itself knows of a target. */
const known = ["sum", "by", "rate", "increase", "histogram_quantile", "up"];

/** Every series that a server has which has done nothing yet: by name, the values of each label. */
async function exported(): Promise<Map<string, Map<string, Set<string>>>> {
  const server = await startLockServer();
  const text = await (await fetch(`${server.url}/metrics`)).text();
  await server.stop({ graceMs: 0 });
  const series = new Map<string, Map<string, Set<string>>>();
  for (const [, name = "", labels = ""] of text.matchAll(/^(\w+)(?:\{(.*)\})? \S+$/gm)) {
    const values = series.get(name) ?? new Map<string, Set<string>>();
    series.set(name, values);
    for (const [, label = "", value = ""] of labels.matchAll(/(\w+)="([^"]*)"/g)) {
      values.set(label, (values.get(label) ?? new Set()).add(value));
    }
  }
  return series;
}

/** The names in an expression: metrics, each with its conditions on labels, and labels to sum by. */
function namesOf(expr: string) {
  const bare = expr.replace(/\{[^}]*\}/g, "").replace(/\[\w+\]/g, "");
  const grouped = [...bare.matchAll(/by \(([^)]*)\)/g)].flatMap(([, list = ""]) => list.split(/,\s*/));
  const words = bare.replace(/by \([^)]*\)/g, "").match(/[a-z_]\w*/g) ?? [];
  const conditions = [...expr.matchAll(/(\w+)\{([^}]*)\}/g)].flatMap(([, metric = "", list = ""]) =>
    [...list.matchAll(/(\w+)(?:=~|!=|=)"([^"]*)"/g)].map(([, label = "", values = ""]) => {
      return { metric, label, values: values.split("|") };
    }),
  );
  return { metrics: words.filter((word) => !known.includes(word)), grouped, conditions };
}

test("every alert is about series that a server has from the beginning, so that the first event is an increase", async () => {
  const series = await exported();
  // Prometheus itself adds these labels.
  const added = ["instance", "job"];
  expect(rules.length).toBeGreaterThan(10);
  for (const { alert, expr } of rules) {
    const { metrics, grouped, conditions } = namesOf(expr);
    if (alert !== "HoldfastDown") expect(metrics, alert).not.toEqual([]);
    expect(metrics.filter((metric) => !series.has(metric), alert)).toEqual([]);
    const labels = new Set(metrics.flatMap((metric) => [...(series.get(metric)?.keys() ?? [])]));
    expect(grouped.filter((label) => !added.includes(label) && !labels.has(label), alert)).toEqual([]);
    for (const { metric, label, values } of conditions.filter((each) => !added.includes(each.label))) {
      expect([...(series.get(metric)?.get(label) ?? [])], alert).toEqual(expect.arrayContaining(values));
    }
  }
});

test("a metric or a label that there is not would be noticed", () => {
  const expr = 'sum by (instance, reason) (increase(holdfast_gone_total{code=~"A|B"}[10m])) > 20';
  expect(namesOf(expr)).toEqual({
    metrics: ["holdfast_gone_total"],
    grouped: ["instance", "reason"],
    conditions: [{ metric: "holdfast_gone_total", label: "code", values: ["A", "B"] }],
  });
});

test("every alert has a severity, says what is wrong, and is explained", () => {
  const explained = read("docs/operations.md");
  for (const { alert, labels, annotations } of rules) {
    expect(["critical", "warning", "info"], alert).toContain(labels.severity);
    expect(annotations.summary, alert).toMatch(/\{\{/);
    expect(annotations.description, alert).toMatch(/\.$/);
    expect(explained, alert).toMatch(new RegExp(`^\\| \`${alert}\` \\|`, "m"));
  }
  expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
});

const promtool = spawnSync("promtool", ["--version"]).error === undefined;
test.skipIf(!promtool)("promtool accepts them", () => {
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "rules", join(root, path)]);
  expect(status, `${stdout}${stderr}`).toBe(0);
});
