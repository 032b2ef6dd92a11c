/**
 * Replicas with wrong clocks run a schedule of one tick a second, and are killed and replaced meanwhile. Every tick must run
 * once, or, where runs are taken over, at least once and with a growing fence.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type RunRecord, type ScheduleOptions } from "holdfast";
import { openStore } from "holdfast/open";
import { forkProgram } from "../programs.ts";

/** What a replica is told. */
export interface ReplicaPlan {
  readonly url: string;
  readonly log: string;
  readonly name: string;
  readonly skewMs: number;
  /** How long its body takes. */
  readonly runMs: number;
  readonly options: ScheduleOptions;
}

export interface KillRoundsOptions {
  readonly url: string;
  /** For the log. */
  readonly folder: string;
  readonly ticks: number;
  readonly replicas: number;
  /** How long between one kill and the next, on average. */
  readonly killEveryMs: number;
  readonly takeover: boolean;
}

export interface KillReport {
  readonly ticks: number;
  readonly kills: number;
  readonly onceOnly: number;
  /** Ticks that ran more than once, each time with a higher fence. */
  readonly repeated: number;
  /** Ticks whose runner was killed before its body could say anything. */
  readonly cutShort: number;
  readonly skewsMs: readonly number[];
  /** What should not have happened. */
  readonly faults: readonly string[];
}

const MAX_SKEW_MS = 3_000;
const TTL_MS = 1_500;
const NAME = "every-second";
const program = new URL("./replica-process.ts", import.meta.url);

export async function killRounds(options: KillRoundsOptions): Promise<KillReport> {
  const { url, folder, ticks, replicas, killEveryMs, takeover } = options;
  const log = join(folder, `${takeover ? "takeover" : "plain"}.log`);
  const schedule: ScheduleOptions = {
    takeover,
    overlap: "allow",
    ttlMs: TTL_MS,
    maxSkewMs: 2 * MAX_SKEW_MS,
    history: 100,
    // A busy machine may be silent for seconds, and that is not what this is about.
    lateMs: 60_000,
  };
  const name = `${NAME}-${takeover ? "takeover" : "plain"}`;
  const children = new Set<ChildProcess>();
  const ready = new Set<ChildProcess>();
  const faults: string[] = [];
  const skewsMs: number[] = [];
  let kills = 0;

  function start(): Promise<unknown> {
    // The first two are as far apart as it gets.
    const skewMs = Math.round(
      [MAX_SKEW_MS, -MAX_SKEW_MS][skewsMs.length] ?? (Math.random() * 2 - 1) * MAX_SKEW_MS,
    );
    skewsMs.push(skewMs);
    const plan: ReplicaPlan = { url, log, name, skewMs, runMs: takeover ? 300 : 0, options: schedule };
    const child = forkProgram(program, [JSON.stringify(plan)]);
    children.add(child);
    child.once("exit", (code, signal) => {
      children.delete(child);
      ready.delete(child);
      if (signal !== "SIGKILL") faults.push(`a replica ended by itself, with ${code ?? signal}`);
    });
    return Promise.race([once(child, "message").then(() => ready.add(child)), once(child, "exit")]);
  }

  async function kill(child: ChildProcess): Promise<void> {
    const ended = once(child, "exit");
    child.kill("SIGKILL");
    await ended;
  }

  try {
    await Promise.all(Array.from({ length: replicas }, start));
    // The fastest clock may have begun the schedule at a moment that is ahead of now by as much.
    const firstMs = (Math.ceil((Date.now() + MAX_SKEW_MS) / 1_000) + 1) * 1_000;
    const lastMs = firstMs + (ticks - 1) * 1_000;
    // Until the slowest clock has got there.
    while (Date.now() < lastMs + MAX_SKEW_MS) {
      await sleep(killEveryMs * (0.5 + Math.random()));
      const victim = await chosen([...ready], log, takeover);
      // Somebody has to be left to go on.
      if (victim === undefined || ready.size < 2) continue;
      await kill(victim);
      kills++;
      void start();
    }
    await sleep(TTL_MS + 2_500);
    const judged = judge(linesIn(log), await readHistory(url, name, schedule), firstMs, ticks, takeover);
    return { ...judged, ticks, kills, skewsMs, faults: [...faults, ...judged.faults] };
  } finally {
    await Promise.all([...children].map(kill));
  }
}

/** Whom to kill: where runs are taken over, preferably somebody in the middle of one. */
async function chosen(ready: readonly ChildProcess[], log: string, inRun: boolean) {
  for (let attempt = 0; inRun && attempt < 100; attempt++) {
    const lines = linesIn(log);
    const last = lines.at(-1);
    const runner = ready.find(({ pid }) => last?.word === "run" && pid === last.pid);
    if (runner !== undefined) return runner;
    await sleep(10);
  }
  return ready[Math.floor(Math.random() * ready.length)];
}

async function readHistory(
  url: string,
  name: string,
  options: ScheduleOptions,
): Promise<readonly RunRecord[]> {
  const locks = createLocks(await openStore(url), { onWarning: () => {} });
  // A schedule of the same name, which never has anything to run.
  const history = await locks
    .schedule(name, "0 0 1 1 *", () => {}, { ...options, takeover: false })
    .history();
  await locks.close();
  return history;
}

interface Line {
  readonly word: string;
  readonly tickMs: number;
  readonly fence: bigint;
  readonly pid: number;
}

function linesIn(log: string): Line[] {
  // The last line may be unfinished.
  const lines = existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : [];
  return lines.map((line) => {
    const [word = "", tickMs, , fence = "0", pid] = line.split(" ");
    return { word, tickMs: Number(tickMs), fence: BigInt(fence), pid: Number(pid) };
  });
}

function judge(
  lines: readonly Line[],
  history: readonly RunRecord[],
  firstMs: number,
  ticks: number,
  takeover: boolean,
) {
  const faults: string[] = [];
  const counts = { onceOnly: 0, repeated: 0, cutShort: 0 };
  for (let tickMs = firstMs; tickMs < firstMs + ticks * 1_000; tickMs += 1_000) {
    const runs = lines.filter((line) => line.word === "run" && line.tickMs === tickMs);
    const done = lines.filter((line) => line.word === "done" && line.tickMs === tickMs);
    const records = history.filter(({ tick }) => tick.getTime() === tickMs);
    const what = `tick ${new Date(tickMs).toISOString()} ran ${runs.length} times`;
    if (runs.length === 1) counts.onceOnly++;
    if (runs.length > 1) {
      counts.repeated++;
      if (!takeover) faults.push(what);
      if (runs.some(({ fence }, index) => index > 0 && fence <= (runs[index - 1]?.fence ?? 0n))) {
        faults.push(`${what}, and the fence did not grow`);
      }
    }
    if (runs.length === 0) {
      if (!takeover && records.some(({ outcome }) => outcome === "lost")) counts.cutShort++;
      else faults.push(what);
    }
    if (takeover && done.length === 0) faults.push(`${what} and was never completed`);
  }
  return { ...counts, faults };
}
