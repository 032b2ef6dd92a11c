/**
 * Processes on machines whose clocks are wrong, by an hour in either direction, contend for a lock of a server whose clock is right. An injected
 * clock would not do: a store that looked at `Date` behind its back would go unnoticed. So the processes are real, and `Date` itself is
 * wrong in them.
 */
import { expect, onTestFinished, test } from "vitest";
import { until } from "../engines/engine.ts";
import { forkProgram } from "../programs.ts";
import type { Holder } from "./holder-process.ts";
import type { TurnMessage } from "./turn-taker.ts";

export interface StoreUnderWrongClocks {
  /** The store of its processes. */
  readonly holder: Holder;
  /** How long after its last heartbeat a claim may still stand, where that is longer than its ttl. */
  readonly endsAfterMs?: number;
  /** Whether its fences tell the time, in microseconds. */
  readonly stampsFences: boolean;
}

const HOUR_MS = 3_600_000;
const TTL_MS = 1_200;
/** The time that a busy machine may need to notice the end of a lease, far below an hour. */
const PATIENCE_MS = 12_000;

interface Turn extends TurnMessage {
  readonly byMs: number;
}

export function testWrongClocks(subject: StoreUnderWrongClocks): void {
  test("processes whose clocks are wrong by an hour keep to the locks of others, and others to theirs", async () => {
    const shifts = [-HOUR_MS, HOUR_MS];
    const turns: Turn[] = [];
    const ended: string[] = [];
    const children = shifts.map((byMs) => {
      const child = startTaker(subject, byMs);
      child.on("message", (message) => turns.push({ ...(message as TurnMessage), byMs }));
      child.on("exit", (code) => ended.push(`the process that is ${byMs} ms off ended with ${code}`));
      return child;
    });
    const isServed = (byMs: number) => turns.filter((turn) => turn.byMs === byMs).length >= 4;
    const lateMs = Math.max(0, (subject.endsAfterMs ?? 0) - TTL_MS) + PATIENCE_MS;
    const faults = () => [...ended, ...faultsOf(turns, lateMs)];
    await until(
      "all are served after leases that end by their ttl",
      async () => shifts.every(isServed) || faults().length > 0,
    );
    expect(faults()).toEqual([]);
    for (const child of children) child.kill("SIGKILL");

    expect(turns.filter(({ isLeft }) => isLeft)).toHaveLength(shifts.length);
    const isNear = (ms: number) => Math.abs(ms - Date.now()) < HOUR_MS / 2;
    // Their clocks are wrong indeed, and yet fences tell the time of the server.
    expect(turns.filter(({ wallMs, byMs }) => !isNear(wallMs - byMs))).toEqual([]);
    if (!subject.stampsFences) return;
    expect(turns.filter(({ fence }) => !isNear(Number(fence) / 1_000))).toEqual([]);
  });
}

function startTaker({ holder }: StoreUnderWrongClocks, byMs: number) {
  const shift = new URL("./shifted-date.js", import.meta.url);
  const program = new URL("./holder-process.ts", import.meta.url);
  const child = forkProgram(program, [holder.store, holder.target(), `${TTL_MS}`, "take turns"], {
    // By the environment, as that is for threads as well.
    env: { ...process.env, SHIFT_MS: `${byMs}`, NODE_OPTIONS: `--import ${shift}` },
  });
  onTestFinished(() => void child.kill("SIGKILL"));
  return child;
}

/** In the order of their fences, each begins when the one before has ended, and soon after that. */
function faultsOf(turns: readonly Turn[], patienceMs: number): string[] {
  const inOrder = turns.toSorted((a, b) => (BigInt(a.fence) < BigInt(b.fence) ? -1 : 1));
  return inOrder.flatMap((turn, index) => {
    const before = inOrder[index - 1];
    if (before === undefined) return [];
    const afterMs = turn.fromMs - before.untilMs;
    const what = `${turn.fence} of ${turn.byMs} began ${afterMs} ms after ${before.fence} of ${before.byMs}`;
    if (turn.fence === before.fence) return [`${what}, with the same fence`];
    return afterMs < 0 || afterMs > patienceMs ? [what] : [];
  });
}
