/** How fast locks that nobody else wants are taken and given back, by many callers of one process. */
import { timed } from "../rounds.ts";
import { type Contender, type ContenderName, contenders } from "./contenders.ts";

/** What a round came to. */
export interface Speed {
  /** What a cycle took, callers side by side, in nanoseconds. */
  readonly cycleNs: number;
  /** What the slowest hundredth of the cycles took at least. */
  readonly p99Ms: number;
}

export type Speeds = ReadonlyMap<ContenderName, readonly Speed[]>;

export interface ThroughputSizes {
  readonly cycles: number;
  readonly rounds: number;
}

/** Rounds before the counted ones. */
const WARM_UP_ROUNDS = 4;

/** Everybody takes a turn in each round: A B C A B C … */
export async function measureThroughput(
  port: number,
  names: readonly ContenderName[],
  callers: number,
  { cycles, rounds }: ThroughputSizes,
): Promise<Speeds> {
  const open = new Map<ContenderName, Contender>();
  for (const name of names) open.set(name, await contenders[name](port));
  const speeds = new Map(names.map((name) => [name, [] as Speed[]]));
  for (let round = -WARM_UP_ROUNDS; round < rounds; round++) {
    for (const [name, contender] of open) {
      const speed = await measureRound(contender, name, callers, Math.ceil(cycles / callers));
      if (round >= 0) speeds.get(name)!.push(speed);
    }
  }
  for (const contender of open.values()) await contender.close();
  return speeds;
}

async function measureRound(
  contender: Contender,
  name: string,
  callers: number,
  each: number,
): Promise<Speed> {
  const tookMs: number[] = [];
  async function call(caller: number): Promise<void> {
    const key = `bench:${name}:${caller}`;
    for (let cycle = 0; cycle < each; cycle++) {
      const startMs = performance.now();
      const release = await contender.acquire(key);
      await release();
      tookMs.push(performance.now() - startMs);
    }
  }
  const work = () => Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)));
  const cycleNs = await timed(each * callers, work);
  return { cycleNs, p99Ms: quantileOf(tookMs, 0.99) };
}

export function quantileOf(values: readonly number[], quantile: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * quantile))]!;
}
