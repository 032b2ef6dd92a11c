/** How fast locks that nobody else wants are taken and given back, by the callers of one process. */
import { Child } from "../child.ts";
import type { Speed } from "../cycles.ts";
import type { ContenderProcess } from "./contender-process.ts";
import type { ContenderName } from "./contenders.ts";

export type Speeds = ReadonlyMap<ContenderName, readonly Speed[]>;

export interface ThroughputSizes {
  readonly roundMs: number;
  readonly rounds: number;
}

const processFile = new URL("contender-process.js", import.meta.url);
/** Rounds before the counted ones. */
const MIN_WARM_UP_ROUNDS = 4;

/** Measures so many callers of each contender. Everybody takes a turn in each round: A B C A B C … */
export type MeasureThroughput = (callers: number, sizes: ThroughputSizes) => Promise<Speeds>;

/** Starts a process for each contender, for as long as somebody measures. */
export async function withContenders<T>(
  port: number,
  names: readonly ContenderName[],
  use: (measure: MeasureThroughput) => Promise<T>,
): Promise<T> {
  const children = new Map(names.map((name) => [name, new Child<ContenderProcess>(processFile)] as const));
  try {
    await Promise.all([...children].map(([name, child]) => child.call("open", { port, name })));
    return await use((callers, sizes) => measureInTurns(children, callers, sizes));
  } finally {
    for (const child of children.values()) child.stop();
  }
}

async function measureInTurns(
  children: ReadonlyMap<ContenderName, Child<ContenderProcess>>,
  callers: number,
  { roundMs, rounds }: ThroughputSizes,
): Promise<Speeds> {
  const speeds = new Map([...children.keys()].map((name) => [name, [] as Speed[]]));
  const warmUpRounds = Math.max(MIN_WARM_UP_ROUNDS, Math.ceil(rounds / 4));
  for (let round = -warmUpRounds; round < rounds; round++) {
    for (const [name, child] of children) {
      const speed = await child.call("cycle", { callers, roundMs });
      if (round >= 0) speeds.get(name)!.push(speed);
    }
  }
  return speeds;
}
