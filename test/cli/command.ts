/** Runs the real command, as it was built. */
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, vi } from "vitest";
import { root } from "../source-tree.ts";

// Every test starts processes, and each may take many seconds on a busy machine.
vi.setConfig({ testTimeout: 150_000 });

/** The limit of one wait: long enough for a busy machine, and shorter than a test, so that the failure names the event. */
const PATIENCE_MS = 120_000;

/** Cleanups, run after the tests of a file: concurrent tests share them. */
const leftovers: (() => unknown)[] = [];
afterAll(async () => {
  for (const end of leftovers.splice(0).reverse()) await end();
});

/** Adds a cleanup. */
export function atEnd(end: () => unknown): void {
  leftovers.push(end);
}

const program = join(root, "dist/cli/main.js");

export interface CommandOptions {
  readonly env?: NodeJS.ProcessEnv;
  /** The standard input. Default: empty. */
  readonly input?: string;
  readonly cwd?: string;
}

export interface Ended {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly ended: Promise<Ended>;
  /** The output so far. */
  stdout(): string;
  stderr(): string;
  kill(signal: NodeJS.Signals): void;
}

/** The environment of this process, without what would tell the command something. */
export function cleanEnv(more: NodeJS.ProcessEnv = {}): NodeJS.ProcessEnv {
  const own = Object.entries(process.env).filter(
    ([name]) => !/^(HOLDFAST_|NO_COLOR$|FORCE_COLOR$)/.test(name),
  );
  return { ...Object.fromEntries(own), ...more };
}

/** Starts it. It does not outlive the tests. */
export function start(args: readonly string[], options: CommandOptions = {}): Running {
  return startProgram(process.execPath, [program, ...args], options);
}

/** Starts it on a terminal, whose screen is its standard output. */
export function startOnTerminal(args: readonly string[]): Running {
  const words = [process.execPath, program, ...args].map((word) => `'${word.replaceAll("'", "'\\''")}'`);
  return startProgram("script", ["-qec", words.join(" "), "/dev/null"], {});
}

function startProgram(name: string, args: readonly string[], options: CommandOptions): Running {
  const child = spawn(name, args, {
    env: cleanEnv(options.env),
    ...(options.cwd !== undefined && { cwd: options.cwd }),
  });
  atEnd(() => void child.kill("SIGKILL"));
  let stdout = "";
  let stderr = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  child.stdin.on("error", () => {});
  child.stdin.end(options.input ?? "");
  const ended = new Promise<Ended>((resolve) => {
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  return {
    process: child,
    pid: child.pid!,
    ended,
    stdout: () => stdout,
    stderr: () => stderr,
    kill: (signal) => void process.kill(child.pid!, signal),
  };
}

/** Runs it to its end. */
export function run(args: readonly string[], options: CommandOptions = {}): Promise<Ended> {
  return start(args, options).ended;
}

/** A folder that is gone after the tests. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-cli-"));
  atEnd(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** A folder with an executable `holdfast`, for shells to find. */
export function binFolder(folder: string): string {
  const path = join(folder, "holdfast");
  writeFileSync(path, `#!/bin/sh\nexec "${process.execPath}" "${program}" "$@"\n`);
  chmodSync(path, 0o755);
  return folder;
}

/** Waits until the check holds. */
export async function until(what: string, check: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + PATIENCE_MS;
  while (!(await check())) {
    if (performance.now() > endMs) throw new Error(`Waited ${PATIENCE_MS} ms in vain: ${what}.`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export interface Serving extends Running {
  readonly url: string;
  /** Its log, line by line. */
  log(): { readonly msg: string; readonly [name: string]: unknown }[];
}

/** Starts a lock server. */
export async function serve(args: readonly string[], options: CommandOptions = {}): Promise<Serving> {
  const running = start(["serve", ...args], options);
  const log = () =>
    running
      .stdout()
      .split("\n")
      .filter((line) => line.startsWith("{"))
      .map((line) => JSON.parse(line));
  const listening = () => log().find(({ msg }) => msg === "listening");
  await until(
    `it listens, instead of: ${running.stderr()}`,
    () => listening() !== undefined || running.process.exitCode !== null,
  );
  const url = listening()?.["url"];
  if (typeof url !== "string") throw new Error(`It does not listen: ${running.stderr()}`);
  return { ...running, url, log };
}
