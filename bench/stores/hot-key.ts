/** One key that the workers of several processes want at once, on any store that has a URL. */
import { createLocks } from "holdfast";
import { Child } from "../child.ts";
import type { Row } from "../report.ts";
import { spreadOf } from "../statistics.ts";
import type { HotKey } from "./hot-key-process.ts";
import { openContender } from "./open-contender.ts";

export interface HotKeySizes {
  readonly processes: number;
  readonly workers: number;
  readonly holdMs: number;
  readonly durationMs: number;
  readonly rounds: number;
}

/** What a round came to, over all processes. */
export interface Contest {
  readonly served: readonly number[];
  readonly longestMs: number;
  readonly fairMs: number;
}

export async function measureHotKey(url: string, sizes: HotKeySizes): Promise<readonly Contest[]> {
  const contests: Contest[] = [];
  // What the killed processes of a round still hold is nobody's business in the next one.
  for (let round = 0; round < sizes.rounds; round++) {
    contests.push(await contest(url, `bench:hot:${round}`, sizes));
  }
  return contests;
}

async function contest(url: string, key: string, sizes: HotKeySizes): Promise<Contest> {
  const { processes, workers, holdMs, durationMs } = sizes;
  const roundTripMs = await measureRoundTrip(url);
  const file = new URL("hot-key-process.js", import.meta.url);
  const children = Array.from({ length: processes }, () => new Child<HotKey>(file));
  try {
    await Promise.all(children.map((child) => child.call("open", { url })));
    const untilMs = Date.now() + durationMs;
    const shares = await Promise.all(
      children.map((child) => child.call("work", { key, workers, holdMs, untilMs })),
    );
    const served = shares.flatMap((share) => share.served);
    const handoffs = Math.max(
      1,
      served.reduce((sum, each) => sum + each, 0),
    );
    const heldMs = shares.reduce((sum, share) => sum + share.heldMs, 0);
    return {
      served,
      longestMs: Math.max(
        ...shares.map((share) => share.waitsMs.reduce((most, each) => Math.max(most, each), 0)),
      ),
      fairMs: served.length * (heldMs / handoffs + roundTripMs),
    };
  } finally {
    for (const child of children) child.stop();
  }
}

/** Half of what an uncontended cycle takes. */
async function measureRoundTrip(url: string): Promise<number> {
  await using locks = createLocks(await openContender(url), { onWarning: () => {} });
  const tookMs: number[] = [];
  for (let cycle = 0; cycle < 30; cycle++) {
    const startMs = performance.now();
    await (await locks.mutex("bench:round-trip").acquire()).release();
    tookMs.push((performance.now() - startMs) / 2);
  }
  return spreadOf(tookMs).median;
}

export function hotKeyRows(name: string, sizes: HotKeySizes, contests: readonly Contest[]): Row[] {
  const { processes, workers, holdMs } = sizes;
  const what = `${name}: one key, ${processes} processes × ${workers} waiters, held ${holdMs} ms`;
  const shares = contests.map(({ served }) => ({ most: Math.max(...served), least: Math.min(...served) }));
  const longestMs = spreadOf(contests.map((contest) => contest.longestMs)).median;
  const fairMs = spreadOf(contests.map((contest) => contest.fairMs)).median;
  return [
    {
      what: `${what}: most by least served`,
      figure: shares.map(({ most, least }) => `${most} by ${least}`).join(", "),
      peer: "",
      result: spreadOf(shares.map(({ most, least }) => most / Math.max(1, least))),
      target: { atMost: 1.3 },
    },
    {
      what: `${what}: longest wait`,
      figure: `${longestMs.toFixed(0)} ms`,
      peer: `a fair queue's: ${fairMs.toFixed(0)} ms`,
      result: spreadOf(contests.map((contest) => contest.longestMs / contest.fairMs)),
    },
  ];
}
