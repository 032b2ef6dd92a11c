/**
 * Measures two things in turns: A B A B …
 *
 * Machines are noisy: other programs, clocks that change their rate, collections of garbage. What disturbs one round
 * most likely disturbs its neighbour, too, so ratios of neighbours say more than a ratio of two long runs.
 */

/** One round of work. Resolves to what an operation took, in nanoseconds. */
export type Round = () => Promise<number>;

export interface Pair {
  readonly ours: readonly number[];
  readonly theirs: readonly number[];
}

/** The rounds before the counted ones, in which the compiler of Node learns what is hot. */
const WARM_UP_ROUNDS = 4;

export async function alternate(
  ours: Round,
  theirs: Round,
  rounds: number,
  warmUpRounds = WARM_UP_ROUNDS,
): Promise<Pair> {
  for (let round = 0; round < warmUpRounds; round++) {
    await ours();
    await theirs();
  }
  const pair = { ours: [] as number[], theirs: [] as number[] };
  for (let round = 0; round < rounds; round++) {
    pair.ours.push(await ours());
    pair.theirs.push(await theirs());
  }
  return pair;
}

/**
 * Times some operations, in nanoseconds each.
 *
 * The young garbage of the round before is collected first, so that nobody pays for the other. Only the young: a full
 * collection makes V8 forget the shapes of objects of which none is alive, and the code that it compiled for them.
 */
export async function timed(operations: number, work: () => Promise<unknown>): Promise<number> {
  collectYoungGarbage();
  const startMs = performance.now();
  await work();
  return ((performance.now() - startMs) * 1e6) / operations;
}

export function collectYoungGarbage(): void {
  exposedGc()({ type: "minor" });
}

/** Heap in use, in bytes, after everything unreachable has been collected. */
export async function liveHeapBytes(): Promise<number> {
  const gc = exposedGc();
  // Finalizers run in turns of their own, and what they held goes with the collection after that.
  for (let pass = 0; pass < 3; pass++) {
    gc();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return process.memoryUsage().heapUsed;
}

function exposedGc(): NodeJS.GCFunction {
  if (globalThis.gc === undefined) throw new Error("Run this with node --expose-gc.");
  return globalThis.gc;
}
