/** A report as a suite makes it and as people read it. */
import { arch, availableParallelism, loadavg, platform } from "node:os";
import type { Spread } from "./statistics.ts";

export type Target = { readonly atLeast: number } | { readonly atMost: number };

export interface Row {
  readonly what: string;
  /** What Holdfast came to, with its unit. */
  readonly figure: string;
  /** What it is compared with, and what that came to. Empty where there is nothing to compare with. */
  readonly peer: string;
  /** What the target is about: a ratio or a fraction. */
  readonly result?: Spread;
  readonly target?: Target | undefined;
}

/** A picture that is written next to the report. */
export interface Plot {
  /** Its file is `<suite>-<name>.svg`. */
  readonly name: string;
  readonly title: string;
  readonly svg: string;
}

export interface Report {
  readonly title: string;
  /** How the figures were made, one paragraph each. */
  readonly method: readonly string[];
  readonly rows: readonly Row[];
  readonly plots?: readonly Plot[];
}

/** Whether the row meets its target; undefined for a row without one. */
export function isMet(row: Row): boolean | undefined {
  if (row.target === undefined || row.result === undefined) return undefined;
  const { median } = row.result;
  return "atLeast" in row.target ? median >= row.target.atLeast : median <= row.target.atMost;
}

export function plotFile(suite: string, plot: Plot): string {
  return `${suite}-${plot.name}.svg`;
}

/** With the share of the processors that the host took meanwhile, where that is known. */
export function markdownOf(report: Report, suite: string, command: string, taken?: number): string {
  const header = ["What", "Holdfast", "Compared with", "Result: median (min to max)", "Target", "Met"];
  const lines = [header, header.map(() => "---"), ...report.rows.map(cellsOf)];
  return [
    `# ${report.title}`,
    "",
    `Written by \`${command}\`, on ${machine()}${showTaken(taken)}.`,
    "",
    ...lines.map((cells) => `| ${cells.join(" | ")} |`),
    "",
    ...(report.plots ?? []).flatMap((plot) => [`![${plot.title}](${plotFile(suite, plot)})`, ""]),
    ...report.method.flatMap((paragraph) => [paragraph, ""]),
  ].join("\n");
}

function cellsOf(row: Row): string[] {
  return [
    row.what,
    row.figure,
    row.peer,
    showResult(row.result),
    showTarget(row.target),
    showMet(isMet(row)),
  ];
}

function showResult(result: Spread | undefined): string {
  if (result === undefined) return "";
  const { median, min, max } = result;
  return min === max ? ratio(median) : `${ratio(median)} (${ratio(min)} to ${ratio(max)})`;
}

function showTarget(target: Target | undefined): string {
  if (target === undefined) return "";
  return "atLeast" in target ? `at least ${target.atLeast}` : `at most ${target.atMost}`;
}

function showMet(met: boolean | undefined): string {
  if (met === undefined) return "";
  return met ? "yes" : "**no**";
}

function showTaken(taken: number | undefined): string {
  return taken === undefined ? "" : `; the host took ${percent(taken)} of the processors meanwhile`;
}

/** A ratio with three digits that count. */
function ratio(value: number): string {
  return value.toPrecision(3);
}

/** A whole number as people read it. */
export function whole(value: number): string {
  return Math.round(value).toLocaleString("en");
}

/** A share as people read it. */
export function percent(share: number, digits = 0): string {
  return `${(share * 100).toFixed(digits)} %`;
}

/** How many operations a second, from what one takes in nanoseconds. */
export function perSecond(nanoseconds: number): string {
  return `${whole(1e9 / nanoseconds)}/s`;
}

/** What of a machine matters to its figures. Neither its name nor its paths. */
function machine(): string {
  const load = loadavg()[0] ?? 0;
  return `Node ${process.versions.node}, ${platform()} ${arch()}, ${availableParallelism()} cores, load ${load.toFixed(1)}`;
}
