/**
 * Processes that lock and write get killed at random moments, one after the other, and others take their places. Throughout: the files
 * open again, somebody is always served, a lock that was held stays held, nobody is granted a lock before the lease of
 * whoever was killed has ended, and fences only grow.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { until } from "../../engines/engine.ts";
import { checkPages } from "./page-check.ts";

export interface KillRoundsOptions {
  readonly folder: string;
  /** How many are killed. */
  readonly rounds: number;
  /** Stops before that when so much time has passed. */
  readonly withinMs: number;
}

export interface KillReport {
  readonly rounds: number;
  readonly grants: number;
  /** How many were killed while they held the lock. */
  readonly heldWhenKilled: number;
  /** What should not have happened. */
  readonly faults: readonly string[];
}

const PROCESSES = 3;
/** Short, so that what a killed holder leaves does not stop the others for long. */
const TTL_MS = 600;
const program = fileURLToPath(new URL("./locker-process.ts", import.meta.url));

export async function killRounds(options: KillRoundsOptions): Promise<KillReport> {
  const { folder, rounds, withinMs } = options;
  const data = join(folder, "data");
  const log = join(folder, "log");
  const endMs = performance.now() + withinMs;
  const faults: string[] = [];
  const children = new Set<ChildProcess>();
  const ready = new Set<ChildProcess>();
  const start = () => {
    const child = fork(program, [data, log, String(TTL_MS)], { execArgv: ["--import", "tsx"] });
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
  let done = 0;
  try {
    for (let each = 0; each < PROCESSES; each++) start();
    while (done < rounds && (performance.now() < endMs || done === 0)) {
      await until("a process is ready", async () => ready.size > 1 || faults.length > 0);
      if (faults.length > 0) break;
      await sleep(Math.random() * 60);
      const victims = [...ready];
      const victim = victims[Math.floor(Math.random() * victims.length)] as ChildProcess;
      const ended = once(victim, "exit");
      victim.kill("SIGKILL");
      await ended;
      done++;
      start();
      const before = grantsIn(log).length;
      await until("somebody is served", async () => grantsIn(log).length > before);
      if (!kept.held) faults.push(`round ${done}: the lock that was kept is lost`);
    }
  } finally {
    await Promise.all([...children].map((child) => end(child)));
  }
  const { held, fence } = await locks.inspect("kept");
  if (held.length !== 1 || held[0]?.fence !== kept.fence || fence !== kept.fence) {
    faults.push("the lock that was kept is not as it was");
  }
  for await (const { key, heldCount } of locks.list({ prefix: "noise:" })) {
    if (heldCount > 1) faults.push(`${key} is held ${heldCount} times`);
  }
  await locks.close();
  faults.push(...checkPages(join(data, "locks.mdb")).problems);
  const grants = grantsIn(log);
  return { rounds: done, grants: grants.length, ...judge(grants, faults) };
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

interface Grant {
  readonly fence: bigint;
  readonly atMs: number;
  readonly untilMs: number;
  ended: boolean;
}

function grantsIn(log: string): Grant[] {
  const grants = new Map<string, Grant>();
  // The last line may be unfinished.
  const lines = existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : [];
  for (const line of lines) {
    const [word, fence = "", atMs, untilMs] = line.split(" ");
    const grant = grants.get(fence);
    if (word === "grant") {
      grants.set(fence, { fence: BigInt(fence), atMs: Number(atMs), untilMs: Number(untilMs), ended: false });
    } else if (grant !== undefined) grant.ended = true;
  }
  return [...grants.values()];
}

function judge(
  grants: readonly Grant[],
  faults: readonly string[],
): Pick<KillReport, "heldWhenKilled" | "faults"> {
  const found = [...faults];
  for (const [index, grant] of grants.entries()) {
    const before = grants[index - 1];
    if (before === undefined) continue;
    if (grant.fence <= before.fence) found.push(`fence ${grant.fence} came after ${before.fence}`);
    if (!before.ended && grant.atMs < before.untilMs) {
      found.push(
        `fence ${grant.fence} was granted ${before.untilMs - grant.atMs} ms before ${before.fence} had ended`,
      );
    }
  }
  return { heldWhenKilled: grants.filter(({ ended }) => !ended).length, faults: found };
}
