/** The Redis store side by side with other libraries over Redis, and with the commands that they are made of. */
import { startRedis } from "../../test/engines/redis.ts";
import { Child } from "../child.ts";
import { linePlot } from "../plot.ts";
import { type Row, whole } from "../report.ts";
import { quantileOf, spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import type { ContenderName } from "./contenders.ts";
import { type CrowdSizes, measureCrowd } from "./crowd.ts";
import { type Contest, type HotKeySizes, measureHotKey } from "./hot-key.ts";
import type { Network } from "./network-process.ts";
import { crowdRows, fastest, hotKeyRows, latencyRow, renewalsRow, speedRow, waitersRow } from "./rows.ts";
import { measureRenewals, measureWaiters, type RenewalsSizes, type WaitersSizes } from "./server-load.ts";
import { type MeasureThroughput, type Speeds, type ThroughputSizes, withContenders } from "./throughput.ts";

interface Sizes {
  readonly alone: ThroughputSizes;
  readonly faraway: ThroughputSizes;
  readonly many: ThroughputSizes;
  /** The points of the plot between 1 and `callers`. */
  readonly curve: ThroughputSizes;
  readonly curveCallers: readonly number[];
  readonly callers: number;
  readonly hotKey: HotKeySizes;
  readonly waiters: WaitersSizes;
  readonly renewals: RenewalsSizes;
  readonly crowd: CrowdSizes;
}

const full: Sizes = {
  // For a fraction of a second after somebody has kept a virtual machine busy, its cores wake up more quickly: whoever is next would
  // profit in shorter rounds. Bare commands by ioredis took 153 µs by themselves, and 100 right after Holdfast had its turn.
  alone: { roundMs: 1_000, rounds: 9 },
  faraway: { roundMs: 1_000, rounds: 9 },
  many: { roundMs: 400, rounds: 19 },
  curve: { roundMs: 100, rounds: 3 },
  curveCallers: [1, 3, 10, 30, 100, 300],
  callers: 100,
  hotKey: { processes: 4, workers: 5, holdMs: 2, durationMs: 6_000, rounds: 3 },
  // A whole period of heartbeats: a third of the ttl.
  waiters: { waiters: 1_000, durationMs: 10_000 },
  // As often as redis-semaphore renews by default.
  renewals: { leases: 10_000, ttlMs: 30_000, refreshMs: 24_000 },
  crowd: { crowd: 10_000, operations: 100, rounds: 7 },
};

const small: Sizes = {
  alone: { roundMs: 10, rounds: 2 },
  faraway: { roundMs: 15, rounds: 2 },
  many: { roundMs: 20, rounds: 2 },
  curve: { roundMs: 10, rounds: 1 },
  curveCallers: [1, 10],
  callers: 10,
  hotKey: { processes: 2, workers: 2, holdMs: 2, durationMs: 300, rounds: 1 },
  waiters: { waiters: 20, durationMs: 200 },
  renewals: { leases: 50, ttlMs: 3_000, refreshMs: 400 },
  crowd: { crowd: 50, operations: 5, rounds: 2 },
};

const peers = ["node-redlock", "redis-semaphore", "verrou"] as const;
const overIoRedis: readonly ContenderName[] = ["Holdfast", "raw ioredis", ...peers];
const everybody: readonly ContenderName[] = [...overIoRedis, "Holdfast over node-redis", "raw node-redis"];
const overBoth: readonly ContenderName[] = [
  "Holdfast",
  "raw ioredis",
  "Holdfast over node-redis",
  "raw node-redis",
];

export const redisSuite: Suite = {
  name: "redis",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    const server = await startRedis();
    const { port } = server;
    try {
      progress("One caller …");
      const alone = await withContenders(port, overBoth, (measure) => measure(1, sizes.alone));
      progress("One caller, over a network …");
      const faraway = await measureFaraway(port, sizes.faraway);
      progress("Many callers, and from few to many …");
      const { many, curve } = await withContenders(port, everybody, async (measure) => ({
        many: await measure(sizes.callers, sizes.many),
        curve: await measureCurve(measure, sizes),
      }));
      progress("One hot key …");
      const contests = await measureHotKey(port, ["Holdfast", ...peers], sizes.hotKey);
      progress("Many waiters …");
      const waiting = await measureWaiters(port, sizes.waiters);
      progress("Many renewals …");
      const renewals = await measureRenewals(port, ["Holdfast", RENEWING_PEER], sizes.renewals);
      progress("Operations in a crowd …");
      const waiters = await measureCrowd(port, "waiters", sizes.crowd);
      const readers = await measureCrowd(port, "readers", sizes.crowd);
      return {
        title: "The Redis store",
        method: methodOf(sizes),
        plots: [throughputPlot(curve), waitsPlot(sizes.hotKey, contests)],
        rows: [
          ...aloneRows("one caller", alone),
          ...aloneRows(`one caller, a network of ${NETWORK_MS} ms there and back`, faraway),
          ...manyRows(sizes.callers, many),
          ...hotKeyRows(sizes.hotKey, contests),
          waitersRow(sizes.waiters, waiting),
          renewalsRow(sizes.renewals, renewals, RENEWING_PEER),
          ...crowdRows("waiters", sizes.crowd, waiters),
          ...crowdRows("readers", sizes.crowd, readers),
        ],
      };
    } finally {
      await server.stop();
    }
  },
};

/** The peer that renews by itself what it holds. */
const RENEWING_PEER = "redis-semaphore";

/** A message takes as long as between two machines that are not next to each other. */
const NETWORK_MS = 1;

async function measureFaraway(port: number, sizes: ThroughputSizes): Promise<Speeds> {
  const network = new Child<Network>(new URL("network-process.js", import.meta.url));
  try {
    const farPort = await network.call("open", { port, delayMs: NETWORK_MS });
    return await withContenders(farPort, overBoth, (measure) => measure(1, sizes));
  } finally {
    network.stop();
  }
}

async function measureCurve(measure: MeasureThroughput, sizes: Sizes): Promise<ReadonlyMap<number, Speeds>> {
  const curve = new Map<number, Speeds>();
  for (const callers of sizes.curveCallers) curve.set(callers, await measure(callers, sizes.curve));
  return curve;
}

function aloneRows(who: string, speeds: Speeds): Row[] {
  const what = `acquire and release, ${who}`;
  const target = { atLeast: 0.95 };
  return [
    speedRow(`${what}, ioredis`, speeds, "Holdfast", "raw ioredis", target),
    speedRow(`${what}, node-redis`, speeds, "Holdfast over node-redis", "raw node-redis", target),
  ];
}

function manyRows(callers: number, speeds: Speeds): Row[] {
  const what = `acquire and release, ${callers} callers on keys of their own`;
  const others = ["raw ioredis", ...peers] as const;
  return [
    speedRow(`${what}: by the best peer`, speeds, "Holdfast", fastest(speeds, peers), { atLeast: 3 }),
    latencyRow(`${what}: 99th percentile`, speeds, peers),
    ...others.map((other) => speedRow(`${what}: by ${other}`, speeds, "Holdfast", other)),
    speedRow(
      `${what}, node-redis: by the best peer`,
      speeds,
      "Holdfast over node-redis",
      fastest(speeds, peers),
    ),
    speedRow(`${what}, node-redis: by raw node-redis`, speeds, "Holdfast over node-redis", "raw node-redis"),
  ];
}

function throughputPlot(curve: ReadonlyMap<number, Speeds>) {
  return linePlot({
    name: "throughput",
    title: "Acquire and release on keys of their own",
    x: { title: "callers", log: true },
    y: { title: "cycles a second" },
    lines: overIoRedis.map((name) => ({
      name,
      points: [...curve].map(([callers, speeds]): [number, number] => {
        const cycleNs = spreadOf((speeds.get(name) ?? []).map((speed) => speed.cycleNs)).median;
        return [callers, 1e9 / cycleNs];
      }),
    })),
  });
}

/** Which part of the waits was at most that long. */
function waitsPlot(sizes: HotKeySizes, contests: ReadonlyMap<ContenderName, readonly Contest[]>) {
  const { processes, workers, holdMs } = sizes;
  const parts = Array.from({ length: 101 }, (_, percent) => percent / 100);
  return linePlot({
    name: "waits",
    title: `Waits for one key, ${processes} processes × ${workers} waiters, held ${holdMs} ms`,
    x: { title: "wait in ms", log: true },
    y: { title: "% of the waits" },
    lines: [...contests].map(([name, rounds]) => {
      const waitsMs = rounds.flatMap((round) => round.waitsMs);
      const points = parts.map((part): [number, number] => [
        Math.max(0.1, quantileOf(waitsMs, part)),
        part * 100,
      ]);
      return { name, points };
    }),
  });
}

function methodOf({ alone, many, hotKey, waiters, renewals, crowd }: Sizes): string[] {
  return [
    "Everything is measured against one redis-server of its own, on the same machine, without persistence. Raw is " +
      "`SET key token PX ttl NX` and a compare-and-delete script by its hash: no waiting, fence, renewal or inspection. Holdfast is " +
      "used as applications use it: `const lease = await locks.mutex(key).acquire(); await lease.release()`.",
    `Everybody has a process of its own, and takes a turn in each round of ${alone.roundMs} ms (one caller) or ${many.roundMs} ms (many callers), ` +
      `${many.rounds} rounds after a warm-up, and each round is divided by its neighbour: what disturbs the machine disturbs both. ` +
      "Ratios of speeds are Holdfast's by the other's; ratios of latencies and costs are the other way round.",
    `The network is a proxy in a process of its own that holds every reply back for ${NETWORK_MS} ms.`,
    `The hot key is wanted by processes of their own, all the time, for ${hotKey.durationMs / 1_000} s, ${hotKey.rounds} times. The wait of a fair ` +
      "queue is the number of workers times the hold as it was measured and a PING's round trip on the idle server. Waits that " +
      "the end cut short count with what they had come to. The other libraries try as often as they do by default, without end. " +
      "Commands are those that clients sent, by the server's `INFO commandstats`.",
    `The waiters of one process are watched for ${waiters.durationMs / 1_000} s, and whoever holds the key with them. Held leases are acquired ` +
      `evenly over ${renewals.refreshMs / 1_000} s, and then watched for as long: redis-semaphore renews each lease once in that time, as it does by ` +
      "default, and Holdfast each at a third of its ttl. Commands are all that clients sent, by the server's `MONITOR`, which tells those of scripts apart.",
    `In the crowd, claims one after the other join a key with ${whole(crowd.crowd)} others, or each a key with one other; then they are renewed, and then they ` +
      "leave, one call each. The time is that of the server, by its `INFO commandstats`. A key that several want is kept in a field and five " +
      "keys of Redis, and each of these operations is some twenty commands; for a key that nobody else wants, they are three.",
  ];
}
