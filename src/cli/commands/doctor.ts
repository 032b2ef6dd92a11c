/** `holdfast doctor`: checks a store and advises repairs. */
import type { Command } from "commander";
import { checkPrefix } from "../../store/index.ts";
import { type Check, ok } from "../doctor/check.ts";
import { examine, failure } from "../doctor/examination.ts";
import { exitCodes } from "../exit-codes.ts";
import { maskedUrl } from "../masked-url.ts";
import { type Colour, type Output, toJson } from "../output.ts";
import { addTargetOptions, adviceFor, openTarget, resolveTarget, type Target } from "../target.ts";
import { version } from "../version.ts";

interface DoctorOptions {
  readonly prefix: string;
  readonly json?: true;
}

/** A prefix that applications do not use. */
const PREFIX = "holdfast-doctor/";

export function configureDoctor(command: Command, output: Output): void {
  command
    .description(
      "Checks a store, or a server and its store: connection, rights, clocks, latency, fences, wake-ups and durability. " +
        "It takes locks below a prefix of its own, and releases them.",
    )
    .option(
      "--prefix <prefix>",
      "the prefix of these locks, for a token that permits certain keys only",
      PREFIX,
    )
    .option("--json", "one JSON object");
  addTargetOptions(command)
    .addHelpText(
      "after",
      `
Exits with 1 if a check failed. Warnings are no failure.

Examples:
  holdfast doctor
  holdfast doctor --store postgres://locks@db/app
  holdfast doctor --json | jq -r '.checks[] | select(.verdict != "ok") | .found'`,
    )
    .action(async (options: DoctorOptions) => {
      checkPrefix(options.prefix, "--prefix");
      const target = resolveTarget(command);
      const checks = [
        ok("version", `holdfast ${version}, Node ${process.versions.node}`),
        ...(await examineTarget(target, options.prefix)),
      ];
      const healthy = !checks.some(({ verdict }) => verdict === "fail");
      if (options.json) output.line(toJson({ store: maskedUrl(target.url), healthy, checks }));
      else print(output, target, checks);
      process.exitCode = healthy ? exitCodes.ok : exitCodes.no;
    });
}

async function examineTarget(target: Target, prefix: string): Promise<readonly Check[]> {
  const stores = await Promise.allSettled([openTarget(target), openTarget(target)]);
  const [first, second] = stores;
  try {
    if (first.status === "rejected") return [cannotOpen(target, first.reason)];
    if (second.status === "rejected") return [cannotOpen(target, second.reason)];
    return await examine({ store: first.value, other: second.value, prefix, timeoutMs: target.timeoutMs });
  } finally {
    for (const opened of stores) if (opened.status === "fulfilled") await opened.value.close();
  }
}

function cannotOpen(target: Target, reason: unknown): Check {
  const advice = adviceFor(target);
  const scheme = /^file:/i.test(target.url) ? "file" : "";
  return { ...failure("reachable", reason, scheme), ...(advice !== undefined && { remedy: advice }) };
}

const marks: Readonly<Record<Check["verdict"], readonly [Colour, string]>> = {
  ok: ["green", "ok  "],
  warn: ["yellow", "warn"],
  fail: ["red", "FAIL"],
  skipped: ["dim", "skip"],
};

function print(output: Output, target: Target, checks: readonly Check[]): void {
  output.line(`${maskedUrl(target.url)}\n`);
  for (const { name, verdict, found, remedy } of checks) {
    const [colour, mark] = marks[verdict];
    output.line(`${output.paint(colour, mark)}  ${name.padEnd(10)}  ${found}`);
    if (remedy !== undefined) output.line(`                  → ${remedy}`);
  }
}
