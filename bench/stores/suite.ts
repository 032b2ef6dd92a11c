/** Every store side by side with what people use on the same database without a library. */
import { createLocks, type Locks, type Store } from "holdfast";
import { perSecond, type Row, type Target, whole } from "../report.ts";
import { alternate } from "../rounds.ts";
import { ratioOf, spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import type { OpenContender, Peer, StoreContender } from "./contender.ts";
import { etcd } from "./etcd.ts";
import { file, fileInMemory } from "./file.ts";
import { type HotKeySizes, hotKeyRows, measureHotKey } from "./hot-key.ts";
import { mongodb } from "./mongodb.ts";
import { mysql } from "./mysql.ts";
import { postgres } from "./postgres.ts";

interface Sizes {
  readonly alone: number;
  readonly callers: number;
  readonly roundMs: number;
  readonly rounds: number;
  readonly held: number;
  readonly hotKey: HotKeySizes;
}

const full: Sizes = {
  alone: 200,
  callers: 100,
  roundMs: 500,
  rounds: 9,
  held: 10_000,
  hotKey: { processes: 4, workers: 5, holdMs: 2, durationMs: 5_000 },
};

const small: Sizes = {
  alone: 5,
  callers: 10,
  roundMs: 20,
  rounds: 1,
  held: 100,
  hotKey: { processes: 2, workers: 2, holdMs: 2, durationMs: 500 },
};

/** What a store is to make of its peer, where that was aimed at. */
const targets: Readonly<Record<string, Target>> = {
  "advisory locks": { atLeast: 5 },
  "etcd3 lock": { atLeast: 10 },
};

/** How many cycles a second the file store is to make with every answer on disk. */
const FILE_CYCLES = 50_000;

export const storesSuite: Suite = {
  name: "stores",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    const rows: Row[] = [];
    for (const contender of contenders()) {
      progress(`${contender.name} …`);
      rows.push(...(await measure(contender, sizes)));
    }
    return { title: "All stores", method: methodOf(sizes), rows };
  },
};

function contenders(): readonly StoreContender[] {
  const inMemory = fileInMemory === undefined ? [] : [fileInMemory];
  return [file, ...inMemory, postgres, mysql, mongodb, etcd];
}

async function measure(contender: StoreContender, sizes: Sizes): Promise<Row[]> {
  const open = await contender.open();
  try {
    const locks = createLocks(await open.newStore(), { onWarning: () => {} });
    const rows = await roundTripRows(contender.name, open, locks, sizes.alone);
    for (const [name, peer] of Object.entries(open.peers)) {
      rows.push(await speedRow(contender.name, locks, name, peer, sizes));
    }
    rows.push(...(await bareRows(contender.name, open, sizes)));
    rows.push(...(await throughputRows(contender.name, locks, sizes)));
    rows.push(...(await heldRows(contender.name, open, sizes)));
    await locks.close();
    const contest = await measureHotKey(open.url, sizes.hotKey);
    rows.push(...hotKeyRows(contender.name, sizes.hotKey, contest));
    return rows;
  } finally {
    await open.close();
  }
}

async function roundTripRows(
  name: string,
  { roundTrips }: OpenContender,
  locks: Locks,
  cycles: number,
): Promise<Row[]> {
  if (roundTrips === undefined) return [];
  const mutex = locks.mutex("bench:alone");
  // The first cycle connects, and learns the time and what the key is.
  await (await mutex.acquire()).release();
  const before = roundTrips();
  for (let cycle = 0; cycle < cycles; cycle++) await (await mutex.acquire()).release();
  const each = (roundTrips() - before) / (2 * cycles);
  return [
    {
      what: `${name}: round trips of an uncontended acquire or release`,
      figure: each.toFixed(2),
      peer: "",
      result: spreadOf([each]),
      // A sample of the server's time now and then is no part of it.
      target: { atMost: 1.05 },
    },
  ];
}

async function speedRow(
  name: string,
  locks: Locks,
  peerName: string,
  peer: Peer,
  sizes: Sizes,
): Promise<Row> {
  const { callers, roundMs, rounds } = sizes;
  const pair = await alternate(
    () => cycleFor(roundMs, callers, acquireFrom(locks)),
    () => cycleFor(roundMs, callers, peer),
    rounds,
  );
  return {
    what: `${name}: acquire and release, ${callers} callers on keys of their own`,
    figure: perSecond(spreadOf(pair.ours).median),
    peer: `${peerName}: ${perSecond(spreadOf(pair.theirs).median)}`,
    result: ratioOf(pair.theirs, pair.ours),
    target: targets[peerName],
  };
}

/** What the database could make of it, beside the same peer as the store. */
async function bareRows(name: string, { bare, peers }: OpenContender, sizes: Sizes): Promise<Row[]> {
  const [first] = Object.entries(peers);
  if (bare === undefined || first === undefined) return [];
  const [peerName, peer] = first;
  const { callers, roundMs, rounds } = sizes;
  const pair = await alternate(
    () => bare(roundMs, callers),
    () => cycleFor(roundMs, callers, peer),
    rounds,
  );
  return [
    {
      what: `${name}: as many bare writes as ${callers} callers make, without any lock`,
      figure: perSecond(spreadOf(pair.ours).median),
      peer: `${peerName}: ${perSecond(spreadOf(pair.theirs).median)}`,
      result: ratioOf(pair.theirs, pair.ours),
    },
  ];
}

/** For the file store, which is to be quick by itself. */
async function throughputRows(name: string, locks: Locks, sizes: Sizes): Promise<Row[]> {
  if (name !== "file") return [];
  const { callers, roundMs, rounds } = sizes;
  const costs: number[] = [];
  for (let round = -1; round < rounds; round++) {
    const cost = await cycleFor(roundMs, callers, acquireFrom(locks));
    if (round >= 0) costs.push(cost);
  }
  const perSecondOf = (ns: number) => 1e9 / ns;
  return [
    {
      what: `${name}: durable cycles a second, ${callers} callers`,
      figure: perSecond(spreadOf(costs).median),
      peer: "",
      result: spreadOf(costs.map((cost) => perSecondOf(cost) / FILE_CYCLES)),
      target: { atLeast: 1 },
    },
  ];
}

/** Many locks at once, where others need a connection for each. */
async function heldRows(name: string, open: OpenContender, sizes: Sizes): Promise<Row[]> {
  if (open.connections === undefined) return [];
  const store: Store = await open.newStore();
  const locks = createLocks(store, { onWarning: () => {} });
  await Promise.all(
    Array.from({ length: sizes.held }, (_, nth) => locks.mutex(`bench:held:${nth}`).acquire()),
  );
  const { held } = locks.stats();
  const used = await open.connections();
  await locks.close();
  return [
    {
      what: `${name}: ${whole(held)} locks held at once: connections of all stores`,
      figure: whole(used),
      peer: `one connection per lock: ${whole(held)}`,
    },
  ];
}

type Acquire = (key: string) => Promise<() => Promise<unknown>>;

function acquireFrom(locks: Locks): Acquire {
  return async (key) => {
    const lease = await locks.mutex(key).acquire();
    return () => lease.release();
  };
}

/** One round: what a cycle takes, callers side by side, in nanoseconds. By time, as speeds differ by a factor of a hundred. */
async function cycleFor(roundMs: number, callers: number, acquire: Acquire): Promise<number> {
  const startMs = performance.now();
  let cycles = 0;
  async function call(caller: number): Promise<void> {
    do {
      await (await acquire(`bench:${caller}`))();
      cycles++;
    } while (performance.now() - startMs < roundMs);
  }
  await Promise.all(Array.from({ length: callers }, (_, caller) => call(caller)));
  return ((performance.now() - startMs) * 1e6) / cycles;
}

function methodOf({ callers, roundMs, rounds, hotKey }: Sizes): string[] {
  return [
    "Every engine is started for this alone, on the same machine, and writes to its disk before it answers, as the store promises. " +
      "MongoDB stands for whatever `test/engines/mongodb.ts` has found: without a `mongod` it is a stand-in in Java.",
    `Speeds are of rounds of ${roundMs} ms by ${callers} callers, ${rounds} rounds each in turns with the peer, after a warm-up. ` +
      "Peers neither queue nor fence nor renew, and some of them write nothing. Bare writes are as many updates of rows as the cycles take, over " +
      "two connections, by a client that does nothing else. PostgreSQL's pools keep pipelines, as docs/stores/postgres.md advises for a fast disk, and " +
      "advisory locks have a connection for each caller.",
    `The hot key is wanted by ${hotKey.processes} processes with ${hotKey.workers} workers each for ${hotKey.durationMs / 1_000} s, and held for ${hotKey.holdMs} ms. ` +
      "The wait of a fair queue is the number of workers times the hold as it was measured and a round trip, for which half an " +
      "uncontended cycle stands.",
  ];
}
