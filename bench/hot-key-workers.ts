/** Workers of one process that all want one key, again and again. */
import { setTimeout as sleep } from "node:timers/promises";

/** What the workers of one process came to. */
export interface Share {
  /** How often each of them got the key. */
  readonly served: readonly number[];
  /** Every wait, those that the end cut short included. */
  readonly waitsMs: readonly number[];
  /** How long the key was kept, all in all. */
  readonly heldMs: number;
}

export interface Stint {
  readonly key: string;
  readonly workers: number;
  readonly holdMs: number;
  /** When it ends, by the clock on the wall: all processes begin with the first one and end together. */
  readonly untilMs: number;
}

export async function workOnHotKey(
  acquire: (key: string) => Promise<() => Promise<unknown>>,
  { key, workers, holdMs, untilMs }: Stint,
): Promise<Share> {
  const served = Array.from({ length: workers }, () => 0);
  const waitsMs: number[] = [];
  const askedMs = new Map<number, number>();
  let heldMs = 0;
  async function worker(nth: number): Promise<void> {
    while (Date.now() < untilMs) {
      const startMs = performance.now();
      askedMs.set(nth, startMs);
      const release = await acquire(key);
      const gotMs = performance.now();
      askedMs.delete(nth);
      waitsMs.push(gotMs - startMs);
      await sleep(holdMs);
      if (Date.now() < untilMs) {
        served[nth]! += 1;
        heldMs += performance.now() - gotMs;
      }
      await release();
    }
  }
  for (let nth = 0; nth < workers; nth++) void worker(nth);
  await sleep(untilMs - Date.now());
  const endMs = performance.now();
  for (const startMs of askedMs.values()) waitsMs.push(endMs - startMs);
  return { served, waitsMs, heldMs };
}
