/**
 * Processes that lock and write are killed at random moments, one or two at a time, and others take their places. The file opens again, callers
 * are served, a held lock stays held, the lock of a killed process is not granted before its lease has ended, and fences only grow.
 */
import type { ChildProcess } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { until } from "../../engines/engine.ts";
import { forkProgram } from "../../programs.ts";
import { grantsIn, heldBy, judge, monotonicMs } from "./grant-log.ts";
import { end, lockerProgram } from "./lockers.ts";
import { checkPages } from "./page-check.ts";
import { databasePath } from "./raw-files.ts";

export interface KillRoundsOptions {
  readonly folder: string;
  /** The least number of rounds, and of leases that killed processes held. */
  readonly rounds: number;
  readonly held: number;
  /** The least time. */
  readonly forMs?: number;
}

export interface KillReport {
  readonly rounds: number;
  /** How many processes were killed: some rounds kill several. */
  readonly kills: number;
  readonly grants: number;
  /** How many leases were held by processes when they were killed. */
  readonly heldWhenKilled: number;
  readonly faults: readonly string[];
}

/** Some are killed, some continue, and some are starting, which takes longer than a round. */
const PROCESSES = 6;
/** Several, so that a killed process probably holds one, and others are served while its lease runs out. */
const KEYS = ["work:1", "work:2", "work:3", "work:4"];
/** Short, so that the lease of a killed holder delays others for a moment only. */
const TTL_MS = 600;

export async function killRounds(options: KillRoundsOptions): Promise<KillReport> {
  const { folder, rounds: wantedRounds, held: wanted, forMs = 0 } = options;
  const data = join(folder, "data");
  const log = join(folder, "log");
  const endMs = performance.now() + forMs;
  const faults: string[] = [];
  const children = new Set<ChildProcess>();
  const ready = new Set<ChildProcess>();
  const start = () => {
    const child = forkProgram(lockerProgram, [data, log, String(TTL_MS), "busy", ...KEYS]);
    children.add(child);
    child.on("message", (word) => {
      if (word === "ready") ready.add(child);
    });
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
  let rounds = 0;
  try {
    for (let each = 0; each < PROCESSES; each++) start();
    const isEnough = () =>
      performance.now() > endMs && rounds >= wantedRounds && heldBy(killedMs, grantsIn(log)) >= wanted;
    while (!isEnough()) {
      await until("processes are ready", async () => ready.size > 2 || faults.length > 0);
      if (faults.length > 0) break;
      await sleep(Math.random() * 60);
      const victims = shuffled([...ready]).slice(0, 1 + Math.round(Math.random()));
      for (const { pid } of victims) killedMs.set(pid as number, monotonicMs());
      await Promise.all(victims.map(end));
      rounds++;
      for (const _ of victims) start();
      const before = grantsIn(log).length;
      await until("a caller is served", async () => grantsIn(log).length > before);
      if (!kept.held) faults.push(`after ${killedMs.size} kills the lock that was kept is lost`);
    }
    const before = grantsIn(log).length;
    await until("all keys are served", async () => {
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
  await locks.close();
  faults.push(...checkPages(databasePath(data)).problems);
  const grants = grantsIn(log);
  for (const key of KEYS) faults.push(...judge(grants.filter((grant) => grant.key === key)));
  const heldWhenKilled = heldBy(killedMs, grants);
  return { rounds, kills: killedMs.size, grants: grants.length, heldWhenKilled, faults };
}

function shuffled<T>(all: readonly T[]): T[] {
  return all
    .map((each) => ({ each, place: Math.random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ each }) => each);
}
