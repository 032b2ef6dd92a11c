/** How long lock cycles take that begin at a given rate, whether or not those before have ended. */
import type { Contender } from "../redis/contenders.ts";
import { quantileOf } from "../statistics.ts";

export interface Latency {
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/**
 * Nobody waits for anybody: each cycle has a key of its own. It counts from when it was due, not from when this process got round to it: a process that falls behind shows as latency. Those
 * that have become due are begun together, about every millisecond; in a loop without rest it would take the processor away from
 * the server.
 */
export async function measureLatency(
  contender: Contender,
  perSecond: number,
  durationMs: number,
): Promise<Latency> {
  const total = Math.ceil((perSecond * durationMs) / 1_000);
  const tookMs = new Float64Array(total);
  const startMs = performance.now();
  let ended = 0;
  let failed: unknown;
  const cycle = async (index: number) => {
    try {
      await (await contender.acquire(`bench:rate:${index}`))();
      tookMs[index] = performance.now() - startMs - (index / perSecond) * 1_000;
    } catch (error) {
      failed ??= error;
    }
    ended++;
  };
  for (let begun = 0; ended < total; ) {
    const due = Math.min(total, ((performance.now() - startMs) / 1_000) * perSecond);
    for (; begun < due; begun++) void cycle(begun);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  if (failed !== undefined) throw failed;
  const values = [...tookMs];
  return { p50Ms: quantileOf(values, 0.5), p99Ms: quantileOf(values, 0.99) };
}
