/** What one store comes to: its speed beside that of its peers, and what its locks cost. */
import { createLocks, type Locks } from "holdfast";
import { type Acquire, type CycleSizes, cycleFor } from "../cycles.ts";
import { perSecond, type Row, type Target, whole } from "../report.ts";
import { alternate } from "../rounds.ts";
import { ratioOf, spreadOf } from "../statistics.ts";
import type { OpenContender, Peer, StoreContender } from "./contender.ts";
import { type HotKeySizes, hotKeyRows, measureHotKey } from "./hot-key.ts";

export interface Sizes {
  readonly alone: number;
  readonly callers: number;
  readonly roundMs: number;
  readonly rounds: number;
  readonly held: number;
  readonly hotKey: HotKeySizes;
}

/** What a store is to make of its peer, where that was aimed at. */
const targets: Readonly<Record<string, Target>> = {
  "advisory locks": { atLeast: 5 },
  "etcd3 lock": { atLeast: 10 },
  "proper-lockfile": { atLeast: 15 },
};

/** What an application's pool may have, however many locks it holds. */
const POOL_CONNECTIONS = 5;

export async function measureStore(contender: StoreContender, sizes: Sizes): Promise<Row[]> {
  const open = await contender.open();
  try {
    const locks = createLocks(await open.newStore(), { onWarning: () => {} });
    const rows = await roundTripRows(contender.name, open, locks, sizes.alone);
    for (const [name, peer] of Object.entries(open.peers)) {
      rows.push({ ...(await speedRow(contender.name, locks, name, peer, sizes)), target: targets[name] });
    }
    rows.push(...(await variantRows(contender.name, open, sizes)));
    rows.push(...(await bareRows(contender.name, open, sizes)));
    rows.push(...(await heldRows(contender.name, open, sizes)));
    await locks.close();
    const contests = await measureHotKey(open.url, sizes.hotKey);
    rows.push(...hotKeyRows(contender.name, sizes.hotKey, contests));
    return rows;
  } finally {
    await open.close();
  }
}

async function roundTripRows(
  name: string,
  { roundTrips, roundTripsAre = "round trips" }: OpenContender,
  locks: Locks,
  cycles: number,
): Promise<Row[]> {
  const mutex = locks.mutex("bench:alone");
  // The first cycle connects, and learns the time and what the key is.
  await (await mutex.acquire()).release();
  let [acquires, releases] = [0, 0];
  for (let cycle = 0; cycle < cycles; cycle++) {
    const before = roundTrips();
    const lease = await mutex.acquire();
    const between = roundTrips();
    await lease.release();
    acquires += between - before;
    releases += roundTrips() - between;
  }
  const each = [acquires / cycles, releases / cycles];
  return [
    {
      what: `${name}: ${roundTripsAre} of an uncontended acquire, and of a release`,
      figure: each.map((trips) => trips.toFixed(2)).join(" and "),
      peer: "",
      // Whichever takes more.
      result: spreadOf([Math.max(...each)]),
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
  const { callers, rounds } = sizes;
  const pair = await alternate(
    () => cycleNsOf(sizes, acquireFrom(locks)),
    () => cycleNsOf(sizes, peer),
    rounds,
    // As many before they count: a new server and the compiler of Node take seconds until they are as they stay.
    rounds,
  );
  return {
    what: `${name}: acquire and release, ${callers} callers on keys of their own`,
    figure: perSecond(spreadOf(pair.ours).median),
    peer: `${peerName}: ${perSecond(spreadOf(pair.theirs).median)}`,
    result: ratioOf(pair.theirs, pair.ours),
  };
}

/** What the store makes of other clients, beside the same peer. */
async function variantRows(name: string, { variants, peers }: OpenContender, sizes: Sizes): Promise<Row[]> {
  const [first] = Object.entries(peers);
  const rows: Row[] = [];
  if (first === undefined) return rows;
  for (const [variant, newStore] of Object.entries(variants ?? {})) {
    const locks = createLocks(await newStore(), { onWarning: () => {} });
    rows.push(await speedRow(`${name}, ${variant}`, locks, ...first, sizes));
    await locks.close();
  }
  return rows;
}

/** What the database could make of it, beside the same peer as the store. */
async function bareRows(name: string, { bare, peers }: OpenContender, sizes: Sizes): Promise<Row[]> {
  const [first] = Object.entries(peers);
  if (bare === undefined || first === undefined) return [];
  const [peerName, peer] = first;
  const { callers, rounds } = sizes;
  const pair = await alternate(
    () => bare(sizes.roundMs, callers),
    () => cycleNsOf(sizes, peer),
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

/** Many locks at once, where others need a connection for each. */
async function heldRows(name: string, open: OpenContender, sizes: Sizes): Promise<Row[]> {
  if (open.pooled === undefined) return [];
  const { store, connections } = await open.pooled(POOL_CONNECTIONS);
  const locks = createLocks(store, { onWarning: () => {} });
  await Promise.all(
    Array.from({ length: sizes.held }, (_, nth) => locks.mutex(`bench:held:${nth}`).acquire()),
  );
  const { held } = locks.stats();
  const used = await connections();
  await locks.close();
  return [
    {
      what: `${name}: ${whole(held)} locks held at once over a pool of ${POOL_CONNECTIONS} as it comes: connections, with the one that listens`,
      figure: whole(used),
      peer: `one connection per lock: ${whole(held)}`,
      result: spreadOf([used]),
      target: { atMost: POOL_CONNECTIONS },
    },
  ];
}

function acquireFrom(locks: Locks): Acquire {
  return async (key) => {
    const lease = await locks.mutex(key).acquire();
    return () => lease.release();
  };
}

async function cycleNsOf(sizes: CycleSizes, acquire: Acquire): Promise<number> {
  return (await cycleFor(sizes, acquire)).cycleNs;
}
