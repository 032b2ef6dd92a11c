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
}

export interface HotKeyResult {
  readonly served: readonly number[];
  readonly longestMs: number;
  readonly fairMs: number;
}

export async function measureHotKey(url: string, sizes: HotKeySizes): Promise<HotKeyResult> {
  const { processes, workers, holdMs, durationMs } = sizes;
  const roundTripMs = await measureRoundTrip(url);
  const file = new URL("hot-key-process.ts", import.meta.url);
  const children = Array.from({ length: processes }, () => new Child<HotKey>(file));
  try {
    await Promise.all(children.map((child) => child.call("open", { url })));
    const untilMs = Date.now() + durationMs;
    const shares = await Promise.all(
      children.map((child) => child.call("work", { workers, holdMs, untilMs })),
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

export function hotKeyRows(
  name: string,
  sizes: HotKeySizes,
  { served, longestMs, fairMs }: HotKeyResult,
): Row[] {
  const { processes, workers, holdMs } = sizes;
  const what = `${name}: one key, ${processes} processes × ${workers} waiters, held ${holdMs} ms`;
  const ratio = Math.max(...served) / Math.max(1, Math.min(...served));
  return [
    {
      what: `${what}: most by least served`,
      figure: `${Math.max(...served)} by ${Math.min(...served)}`,
      peer: "",
      result: spreadOf([ratio]),
      target: { atMost: 1.3 },
    },
    {
      what: `${what}: longest wait`,
      figure: `${longestMs.toFixed(0)} ms`,
      peer: `a fair queue's: ${fairMs.toFixed(0)} ms`,
      result: spreadOf([longestMs / fairMs]),
    },
  ];
}
