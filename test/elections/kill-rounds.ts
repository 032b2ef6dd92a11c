/**
 * Candidates campaign, and whoever leads is killed, or told to go, again and again. Never do two lead, fences only grow, and the
 * office is filled again as fast as it can be: after a crash when the ttl is over, after a resignation at once.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { openStore } from "holdfast/open";
import { until } from "../engines/engine.ts";
import { forkProgram } from "../programs.ts";

export interface ElectionRoundsOptions {
  readonly url: string;
  /** For the log. */
  readonly folder: string;
  readonly candidates: number;
  readonly ttlMs: number;
  /** How many leaders are killed, and as many told to go. */
  readonly rounds: number;
}

export interface ElectionReport {
  readonly terms: number;
  /**
   * How long the office was empty, in milliseconds: after each crash from the kill on, and after each resignation from the end of
   * the leader's body on.
   */
  readonly crashes: readonly number[];
  readonly resignations: readonly number[];
  /** What one look at the store takes from here, in milliseconds: the median of several. */
  readonly roundTripMs: number;
  /** What should not have happened. */
  readonly faults: readonly string[];
}

const program = new URL("./candidate-process.ts", import.meta.url);
const monotonicMs = () => Number(process.hrtime.bigint()) / 1e6;

export async function electionRounds(options: ElectionRoundsOptions): Promise<ElectionReport> {
  const { url, folder, candidates, ttlMs, rounds } = options;
  const log = join(folder, "terms.log");
  const children = new Map<number, ChildProcess>();
  const faults: string[] = [];
  const emptyMs = { SIGKILL: [] as number[], SIGTERM: [] as number[] };

  async function start(): Promise<void> {
    const child = forkProgram(program, [url, log, String(ttlMs)]);
    child.once("exit", (code, signal) => {
      children.delete(child.pid ?? 0);
      if (signal !== "SIGKILL" && code !== 0) faults.push(`a candidate ended with ${code ?? signal}`);
    });
    await Promise.race([once(child, "message"), once(child, "exit")]);
    children.set(child.pid ?? 0, child);
  }

  /** Ends the leader's term, and sees how long it takes until there is another. */
  async function depose(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const leader = elections(log).at(-1);
    const child = children.get(leader?.pid ?? 0);
    if (leader === undefined || child === undefined) throw new Error("nobody leads");
    const ended = once(child, "exit");
    const atMs = monotonicMs();
    child.kill(signal);
    await until("the next one leads", async () => (elections(log).at(-1)?.fence ?? 0n) > leader.fence);
    const lines = linesIn(log);
    const next = lines.find(({ word, fence }) => word === "elected" && fence > leader.fence);
    const end = lines.find(({ word, fence }) => word === "ends" && fence === leader.fence);
    emptyMs[signal].push((next?.atMs ?? Number.NaN) - (end?.atMs ?? atMs));
    await ended;
    await start();
  }

  const locks = createLocks(await openStore(url));
  try {
    await Promise.all(Array.from({ length: candidates }, start));
    await until("somebody leads", async () => elections(log).length > 0);
    for (let round = 0; round < rounds; round++) {
      // Anywhere between two heartbeats.
      await sleep(Math.random() * ttlMs);
      await depose("SIGKILL");
      await sleep(100 + Math.random() * 100);
      await depose("SIGTERM");
    }
    const lines = linesIn(log);
    return {
      terms: elections(log).length,
      crashes: emptyMs.SIGKILL,
      resignations: emptyMs.SIGTERM,
      roundTripMs: await roundTrip(() => locks.inspect("office")),
      faults: [...faults, ...judge(lines)],
    };
  } finally {
    for (const child of [...children.values()]) {
      const ended = once(child, "exit");
      child.kill("SIGKILL");
      await ended;
    }
    await locks.close();
  }
}

async function roundTrip(call: () => Promise<unknown>): Promise<number> {
  const took: number[] = [];
  for (let each = 0; each < 20; each++) {
    const startMs = performance.now();
    await call();
    took.push(performance.now() - startMs);
  }
  return took.sort((a, b) => a - b)[10] ?? 0;
}

interface Line {
  readonly word: string;
  readonly fence: bigint;
  readonly atMs: number;
  readonly pid: number;
}

function linesIn(log: string): Line[] {
  // The last line may be unfinished.
  const lines = existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : [];
  return lines.map((line) => {
    const [word = "", fence = "0", atMs, pid] = line.split(" ");
    return { word, fence: BigInt(fence), atMs: Number(atMs), pid: Number(pid) };
  });
}

function elections(log: string): Line[] {
  return linesIn(log).filter(({ word }) => word === "elected");
}

/** Whoever wrote "leads" could prove it. Once somebody with a higher fence was elected, nobody else may. */
function judge(lines: readonly Line[]): string[] {
  const faults: string[] = [];
  let highest = 0n;
  for (const { word, fence, pid } of lines) {
    if (word === "elected" && fence <= highest) faults.push(`fence ${fence} was elected after ${highest}`);
    if (word === "leads" && fence < highest)
      faults.push(`process ${pid} led with fence ${fence} after ${highest} was elected`);
    if (fence > highest) highest = fence;
  }
  return faults;
}
