/**
 * Processes that lock and write get killed at random moments, one or two at a time, and others take their places. Throughout: the
 * files open again, somebody is always served, a lock that was held stays held, nobody is granted a lock before the lease of
 * whoever was killed has ended, and fences only grow.
 */
import { type ChildProcess, execFile, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual, promisify } from "node:util";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { fileDriver } from "../../../src/stores/file/file-driver.ts";
import { until } from "../../engines/engine.ts";
import { root } from "../../source-tree.ts";
import { checkPages } from "./page-check.ts";
import { livePath } from "./raw-files.ts";

export interface KillRoundsOptions {
  readonly folder: string;
  /** Goes on until so many were killed, and so many of their leases with them. */
  readonly kills: number;
  readonly held: number;
  /** And for at least so long. */
  readonly forMs?: number;
}

export interface KillReport {
  readonly kills: number;
  readonly grants: number;
  /** How many leases were held by processes when they were killed. */
  readonly heldWhenKilled: number;
  /** What should not have happened. */
  readonly faults: readonly string[];
}

/** Those that are killed, those that go on, and those that are about to take a place: starting takes longer than a round. */
const PROCESSES = 6;
/** Several, so that whoever is killed most likely holds one, and the others are served while its lease runs out. */
const KEYS = ["work:1", "work:2", "work:3", "work:4"];
/** Short, so that what a killed holder leaves does not stop the others for long. */
const TTL_MS = 600;

export async function killRounds(options: KillRoundsOptions): Promise<KillReport> {
  const { folder, kills, held: wanted, forMs = 0 } = options;
  const data = join(folder, "data");
  const log = join(folder, "log");
  const program = await compileLocker(join(folder, "program"));
  const endMs = performance.now() + forMs;
  const faults: string[] = [];
  const children = new Set<ChildProcess>();
  const ready = new Set<ChildProcess>();
  const start = () => {
    const child = fork(program, [data, log, String(TTL_MS), ...KEYS], { execArgv: [] });
    children.add(child);
    child.once("message", () => ready.add(child));
    child.once("exit", (code, signal) => {
      children.delete(child);
      ready.delete(child);
      if (signal !== "SIGKILL") faults.push(`a process ended by itself, with ${code ?? signal}`);
    });
  };

  const locks = createLocks(fileStore(data));
  const kept = await locks.mutex("kept", { ttlMs: 60_000 }).acquire();
  /** When each was killed, by its process id. */
  const killedMs = new Map<number, number>();
  try {
    for (let each = 0; each < PROCESSES; each++) start();
    const isEnough = () =>
      performance.now() > endMs && killedMs.size >= kills && heldBy(killedMs, grantsIn(log)) >= wanted;
    while (!isEnough()) {
      await until("processes are ready", async () => ready.size > 2 || faults.length > 0);
      if (faults.length > 0) break;
      await sleep(Math.random() * 60);
      const victims = shuffled([...ready]).slice(0, 1 + Math.round(Math.random()));
      for (const { pid } of victims) killedMs.set(pid as number, monotonicMs());
      await Promise.all(victims.map(end));
      for (const _ of victims) start();
      const before = grantsIn(log).length;
      await until("somebody is served", async () => grantsIn(log).length > before);
      if (!kept.held) faults.push(`after ${killedMs.size} kills the lock that was kept is lost`);
    }
    const before = grantsIn(log).length;
    await until("everybody is served", async () => {
      const since = grantsIn(log).slice(before);
      return KEYS.every((key) => since.some((grant) => grant.key === key)) || faults.length > 0;
    });
  } finally {
    await Promise.all([...children].map(end));
  }
  const { held, fence } = await locks.inspect("kept");
  if (held.length !== 1 || held[0]?.fence !== kept.fence || fence !== kept.fence) {
    faults.push("the lock that was kept is not as it was");
  }
  for await (const { key, heldCount } of locks.list({ prefix: "noise:" })) {
    if (heldCount > 1) faults.push(`${key} is held ${heldCount} times`);
  }
  const present = await recordsIn(data, () => locks.close());
  // Nobody has it open, so all has to be found in the log and what it was put into.
  if (!isDeepStrictEqual(await recordsIn(data), present))
    faults.push("what is on the disk is something else");
  for (const path of [join(data, "locks.mdb"), livePath(data)]) faults.push(...checkPages(path).problems);
  const grants = grantsIn(log);
  for (const key of KEYS) faults.push(...judge(grants.filter((grant) => grant.key === key)));
  const heldWhenKilled = heldBy(killedMs, grants);
  return { kills: killedMs.size, grants: grants.length, heldWhenKilled, faults };
}

/** All records, after something else has been done while the folder was open. */
async function recordsIn(data: string, before = async () => {}): Promise<unknown> {
  const driver = fileDriver(data);
  try {
    await driver.read([]);
    await before();
    return (await driver.list("", undefined, 100_000)).records;
  } finally {
    await driver.close?.();
  }
}

/** Compiles the program once: tsx would cost every process a second of the processor, and processes are what is counted here. */
async function compileLocker(folder: string): Promise<string> {
  const source = join("test", "stores", "file", "locker-process.ts");
  // Nobody imports what runs in the thread.
  const thread = join("src", "stores", "file", "disk-thread.js");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  const settings = ["--ignoreConfig", "--noCheck", "--module", "nodenext", "--target", "es2023", "--allowJs"];
  const places = ["--rewriteRelativeImportExtensions", "--rootDir", root, "--outDir", folder];
  const args = [compiler, ...settings, ...places, join(root, source), join(root, thread)];
  await promisify(execFile)(process.execPath, args);
  return join(folder, source.replace(/\.ts$/, ".js"));
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

function shuffled<T>(all: readonly T[]): T[] {
  return all
    .map((each) => ({ each, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ each }) => each);
}

const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;

interface Grant {
  readonly key: string;
  readonly fence: bigint;
  readonly atMs: number;
  readonly untilMs: number;
  readonly pid: number;
  ended: boolean;
}

function grantsIn(log: string): Grant[] {
  const grants = new Map<string, Grant>();
  // The last line may be unfinished.
  const lines = existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : [];
  for (const line of lines) {
    const [word, key = "", fence = "", atMs, untilMs, pid] = line.split(" ");
    const name = `${key} ${fence}`;
    if (word === "end") {
      const grant = grants.get(name);
      if (grant !== undefined) grant.ended = true;
      continue;
    }
    const times = { atMs: Number(atMs), untilMs: Number(untilMs) };
    grants.set(name, { key, fence: BigInt(fence), ...times, pid: Number(pid), ended: false });
  }
  return [...grants.values()];
}

/** How many leases processes had that were killed then. */
function heldBy(killedMs: ReadonlyMap<number, number>, grants: readonly Grant[]): number {
  const isHeld = ({ pid, atMs, untilMs, ended }: Grant) => {
    const killed = killedMs.get(pid);
    return !ended && killed !== undefined && atMs <= killed && killed < untilMs;
  };
  return grants.filter(isHeld).length;
}

/** What is wrong with the grants of one key, in the order in which they were written down. */
function judge(grants: readonly Grant[]): string[] {
  const found: string[] = [];
  for (const [index, grant] of grants.entries()) {
    const before = grants[index - 1];
    if (before === undefined) continue;
    const { key, fence } = grant;
    if (fence <= before.fence) found.push(`${key}: fence ${fence} came after ${before.fence}`);
    if (!before.ended && grant.atMs < before.untilMs) {
      const earlyMs = before.untilMs - grant.atMs;
      found.push(`${key}: fence ${fence} was granted ${earlyMs} ms before ${before.fence} had ended`);
    }
  }
  return found;
}
