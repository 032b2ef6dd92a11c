/** Every store side by side with what people use on the same database without a library. */
import { Child } from "../child.ts";
import type { Row } from "../report.ts";
import type { Suite } from "../suite.ts";
import type { StoreContender } from "./contender.ts";
import { contenders } from "./contenders.ts";
import type { Sizes } from "./measure.ts";
import type { StoreProcess } from "./store-process.ts";

const full: Sizes = {
  alone: 200,
  callers: 100,
  roundMs: 500,
  rounds: 9,
  held: 10_000,
  // Processes do not begin in the same moment, which is two or three turns of a slow store; in five seconds that has only some fifteen.
  hotKey: { processes: 4, workers: 5, holdMs: 2, durationMs: 10_000, rounds: 3 },
};

const small: Sizes = {
  alone: 5,
  callers: 10,
  roundMs: 20,
  rounds: 1,
  held: 100,
  hotKey: { processes: 2, workers: 2, holdMs: 2, durationMs: 500, rounds: 1 },
};

export const storesSuite: Suite = {
  name: "stores",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    const measure = ({ name }: StoreContender) => {
      progress(`${name} …`);
      return measureInProcess(name, sizes);
    };
    // Where figures mean nothing, nobody is disturbed by the others.
    const rows = quick
      ? await Promise.all(contenders.map(measure))
      : await oneAfterTheOther(contenders, measure);
    return { title: "All stores", method: methodOf(sizes), rows: rows.flat() };
  },
};

async function oneAfterTheOther<T, R>(all: readonly T[], work: (each: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (const each of all) done.push(await work(each));
  return done;
}

async function measureInProcess(name: string, sizes: Sizes): Promise<Row[]> {
  const child = new Child<StoreProcess>(new URL("store-process.js", import.meta.url));
  try {
    return await child.call("measure", { name, sizes });
  } finally {
    child.stop();
  }
}

function methodOf({ callers, roundMs, rounds, hotKey }: Sizes): string[] {
  return [
    "Every store is measured in a process of its own, beside its peers. Every engine is started for this alone, on the same machine, and writes to its disk before it answers, as the store promises; PostgreSQL does so for grants, and for releases of leases that live longer than a minute alone. " +
      "MongoDB stands for whatever `test/engines/mongodb.ts` has found: without a `mongod` it is a stand-in in Java. Its time is asked for beside each request, by a `hello` that nobody waits for and that is not counted.",
    `Speeds are of rounds of ${roundMs} ms by ${callers} callers, ${rounds} rounds each in turns with the peer, after a warm-up. ` +
      "Peers neither queue nor fence nor renew, and some of them write nothing. Bare writes are as many updates of rows as the cycles take, over " +
      "two connections, by a client that does nothing else; for files, as many bytes and flushes. " +
      "Advisory locks have a connection for each caller.",
    `The hot key is wanted by ${hotKey.processes} processes with ${hotKey.workers} workers each for ${hotKey.durationMs / 1_000} s, ${hotKey.rounds} times, and held for ${hotKey.holdMs} ms. ` +
      "The wait of a fair queue is the number of workers times the hold as it was measured and a round trip, for which half an " +
      "uncontended cycle stands.",
  ];
}
