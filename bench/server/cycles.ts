/** Lock cycles on keys that nobody else wants: as many as go, and at a given rate. */
import type { Contender } from "../redis/contenders.ts";
import { quantileOf } from "../redis/throughput.ts";
import { timed } from "../rounds.ts";

/** How long one cycle took, callers side by side, in nanoseconds. */
export function measureCycles(
  contender: Contender,
  name: string,
  callers: number,
  cycles: number,
): Promise<number> {
  const each = Math.ceil(cycles / callers);
  const call = async (caller: number) => {
    const key = `bench:${name}:${caller}`;
    for (let cycle = 0; cycle < each; cycle++) await (await contender.acquire(key))();
  };
  return timed(each * callers, () =>
    Promise.all(Array.from({ length: callers }, (_, caller) => call(caller))),
  );
}

/** The 99th percentile of what cycles take that begin at this rate, whether or not those before have ended. */
export async function measureLatencyMs(
  contender: Contender,
  perSecond: number,
  durationMs: number,
): Promise<number> {
  const tookMs: number[] = [];
  const running: Promise<void>[] = [];
  const cycle = async (key: string) => {
    const startMs = performance.now();
    await (await contender.acquire(key))();
    tookMs.push(performance.now() - startMs);
  };
  const startMs = performance.now();
  for (let begun = 0, elapsedMs = 0; elapsedMs < durationMs; elapsedMs = performance.now() - startMs) {
    const due = Math.floor((elapsedMs / 1_000) * perSecond);
    for (; begun < due; begun++) running.push(cycle(`bench:rate:${begun % 1_000}`));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await Promise.all(running);
  return quantileOf(tookMs, 0.99);
}
