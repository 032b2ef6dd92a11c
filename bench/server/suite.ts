/** The remote store side by side with one call for each step, and with the libraries over Redis. */
import { canRunRedis, startRedis } from "../../test/engines/redis.ts";
import { Child } from "../child.ts";
import { type Contender, type ContenderName, contenders } from "../redis/contenders.ts";
import { perSecond, type Report, type Row, type Target, whole } from "../report.ts";
import { ratioOf, spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import { type RemoteName, remoteContenders } from "./contenders.ts";
import { measureCrowd } from "./crowd.ts";
import { measureCycles } from "./cycles.ts";
import { measureLatency } from "./latency.ts";
import { type ManyClientsSizes, measureManyClients } from "./many-clients.ts";
import type { ServerProcess } from "./server-process.ts";

interface Sizes {
  readonly callers: readonly number[];
  /** Cycles of a session in a round, for each number of callers; others do as many as take about as long. */
  readonly cycles: readonly number[];
  readonly unaryCycles: number;
  readonly rounds: number;
  readonly latencyMs: number;
  /** Waiters for one key, and the clients that they are of. */
  readonly crowd: readonly [number, number];
  readonly many: ManyClientsSizes;
}

const full: Sizes = {
  callers: [1, 10, 100],
  cycles: [1_000, 10_000, 30_000],
  unaryCycles: 1_000,
  rounds: 9,
  latencyMs: 1_000,
  crowd: [1_000, 10],
  many: { clients: 10_000, processes: 4, ttlMs: 30_000, spreadMs: 10_000, watchMs: 20_000 },
};
const small: Sizes = {
  callers: [1, 10],
  cycles: [20, 50],
  unaryCycles: 20,
  rounds: 2,
  latencyMs: 100,
  crowd: [20, 2],
  many: { clients: 10, processes: 1, ttlMs: 30_000, spreadMs: 0, watchMs: 100 },
};

/** What a session is to come to: this many cycles a second, or this many times what the best library over Redis does. */
const TARGET_CYCLES = 80_000;
const TARGET_BY_PEER = 2.5;

const WARM_UP_ROUNDS = 2;
const unary: readonly RemoteName[] = ["unary gRPC by grpc-js", "unary gRPC by Connect"];
const peers: readonly ContenderName[] = ["node-redlock", "redis-semaphore", "verrou"];

/** What a cycle took in each round, in nanoseconds, by contender. */
type Times = ReadonlyMap<string, readonly number[]>;

export const serverSuite: Suite = {
  name: "server",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    const child = new Child<ServerProcess>(new URL("server-process.js", import.meta.url));
    const redis = canRunRedis() ? await startRedis() : undefined;
    const open = new Map<string, Contender>();
    try {
      const address = await child.call("start", {});
      for (const name of ["Holdfast", ...unary] as RemoteName[])
        open.set(name, await remoteContenders[name](address));
      if (redis !== undefined) for (const name of peers) open.set(name, await contenders[name](redis.port));
      const rows: Row[] = [];
      let fastestNs = Number.POSITIVE_INFINITY;
      for (const [index, callers] of sizes.callers.entries()) {
        progress(`${callers} callers …`);
        const times = await measure(open, callers, sizes.cycles[index]!, sizes);
        rows.push(...rowsOf(callers, times, callers === sizes.callers.at(-1)));
        fastestNs = Math.min(fastestNs, spreadOf(times.get("Holdfast")!).median);
      }
      progress("Half of that …");
      rows.push(await latencyRow(open.get("Holdfast")!, fastestNs, sizes));
      progress("What a cycle costs …");
      rows.push(...(await costRows(open.get("Holdfast")!, child, sizes)));
      progress("A crowd on one key …");
      rows.push(await crowdRow(address.url, sizes));
      // A server of its own, and nobody else's connections.
      for (const contender of open.values()) await contender.close();
      open.clear();
      progress(`${whole(sizes.many.clients)} clients …`);
      rows.push(...(await manyClientsRows(sizes.many)));
      return reportOf(rows, sizes);
    } finally {
      for (const contender of open.values()) await contender.close();
      child.stop();
      await redis?.stop();
    }
  },
};

/** Everybody takes a turn in each round. */
async function measure(
  open: ReadonlyMap<string, Contender>,
  callers: number,
  cycles: number,
  sizes: Sizes,
): Promise<Times> {
  const times = new Map([...open.keys()].map((name) => [name, [] as number[]]));
  for (let round = -WARM_UP_ROUNDS; round < sizes.rounds; round++) {
    for (const [name, contender] of open) {
      const isUnary = (unary as readonly string[]).includes(name);
      const count = isUnary ? Math.min(cycles, sizes.unaryCycles) : cycles;
      const cycleNs = await measureCycles(contender, name, callers, count);
      if (round >= 0) times.get(name)!.push(cycleNs);
    }
  }
  return times;
}

function rowsOf(callers: number, times: Times, isMost: boolean): Row[] {
  const what = `acquire and release, ${callers} ${callers === 1 ? "caller" : "callers"}`;
  const row = (other: string, target?: Target): Row => ({
    what: `${what}: by ${other}`,
    figure: perSecond(spreadOf(times.get("Holdfast")!).median),
    peer: `${other}: ${perSecond(spreadOf(times.get(other)!).median)}`,
    result: ratioOf(times.get(other)!, times.get("Holdfast")!),
    ...(target !== undefined && { target }),
  });
  const fastest = (names: readonly string[]) =>
    names
      .filter((name) => times.has(name))
      .toSorted((a, b) => spreadOf(times.get(a)!).median - spreadOf(times.get(b)!).median)[0];
  const peer = fastest(peers);
  return [
    ...unary.map((name) => row(name, isMost && name === fastest(unary) ? { atLeast: 15 } : undefined)),
    ...(peer === undefined ? [] : [row(peer)]),
    ...(isMost ? [targetRow(what, times, peer)] : []),
  ];
}

/** By the target, which is the lower of a figure and of a multiple of the best peer in the same round. */
function targetRow(what: string, times: Times, peer: string | undefined): Row {
  const targetNs = (times.get(peer ?? "") ?? times.get("Holdfast")!.map(() => 0)).map((peerNs) =>
    Math.max(1e9 / TARGET_CYCLES, peerNs / TARGET_BY_PEER),
  );
  return {
    what: `${what}: by what was aimed at`,
    figure: perSecond(spreadOf(times.get("Holdfast")!).median),
    peer: `the lower of ${whole(TARGET_CYCLES)}/s and ${TARGET_BY_PEER} times ${peer ?? "the best library over Redis"}`,
    result: ratioOf(targetNs, times.get("Holdfast")!),
    target: { atLeast: 1 },
  };
}

async function latencyRow(contender: Contender, cycleNs: number, sizes: Sizes): Promise<Row> {
  const rate = 1e9 / cycleNs / 2;
  const p50Ms: number[] = [];
  const p99Ms: number[] = [];
  for (let round = -WARM_UP_ROUNDS; round < sizes.rounds; round++) {
    const latency = await measureLatency(contender, rate, sizes.latencyMs);
    if (round < 0) continue;
    p50Ms.push(latency.p50Ms);
    p99Ms.push(latency.p99Ms);
  }
  return {
    what: `a cycle at half of that rate, ${whole(rate)}/s: 99th percentile`,
    figure: `${spreadOf(p99Ms).median.toFixed(1)} ms`,
    peer: `its median: ${spreadOf(p50Ms).median.toFixed(1)} ms`,
    result: spreadOf(p99Ms),
    target: { atMost: 5 },
  };
}

async function crowdRow(url: string, { crowd: [waiters, clients] }: Sizes): Promise<Row> {
  const { outOfOrder, handoffMs } = await measureCrowd(url, waiters, clients);
  return {
    what: `${whole(waiters)} waiters of ${clients} clients on one key: not served in the order in which they came`,
    figure: `${outOfOrder}`,
    peer: `${whole(1_000 / handoffMs)} handed over a second`,
    result: spreadOf([outOfOrder]),
    target: { atMost: 0 },
  };
}

async function manyClientsRows(sizes: ManyClientsSizes): Promise<Row[]> {
  const result = await measureManyClients(sizes);
  const what = `${whole(sizes.clients)} connected clients, a lease each, ttl ${sizes.ttlMs / 1_000} s`;
  const eachKb = (result.connectedBytes - result.idleBytes) / sizes.clients / 1_024;
  return [
    {
      what: `${what}: memory of the server`,
      figure: `${megabytes(result.connectedBytes)}`,
      peer: `before: ${megabytes(result.idleBytes)}; ${eachKb.toFixed(0)} KB a client`,
    },
    {
      what: `${what}: processor of the server, as a fraction of one core`,
      figure: result.cpu.toFixed(3),
      peer: `its event loop was late by ${result.longestDelayMs.toFixed(0)} ms at most`,
    },
    {
      what: `${what}: heartbeats confirmed, by those due`,
      figure: result.renewed.toFixed(3),
      peer: "",
      result: spreadOf([result.renewed]),
      target: { atLeast: 0.95 },
    },
    {
      what: `${what}: leases lost`,
      figure: `${result.lost}`,
      peer: "",
      result: spreadOf([result.lost]),
      target: { atMost: 0 },
    },
  ];
}

function megabytes(bytes: number): string {
  return `${whole(bytes / 1_048_576)} MB`;
}

/** What depends least on what else the machine does: the time of processors. */
async function costRows(contender: Contender, child: Child<ServerProcess>, sizes: Sizes): Promise<Row[]> {
  const callers = sizes.callers.at(-1)!;
  const cycles = sizes.cycles.at(-1)!;
  await child.call("used", undefined as never);
  const before = process.cpuUsage();
  await measureCycles(contender, "cost", callers, cycles);
  const { user, system } = process.cpuUsage(before);
  const { cpuUs: server } = await child.call("used", undefined as never);
  const row = (where: string, us: number): Row => ({
    what: `processor time of a cycle, ${callers} callers: ${where}`,
    figure: `${(us / cycles).toFixed(1)} µs`,
    peer: "",
  });
  return [row("the client", user + system), row("the server", server)];
}

function reportOf(rows: readonly Row[], sizes: Sizes): Report {
  return {
    title: "The lock server",
    rows,
    method: [
      "The server is another process on the same machine, over memory. Holdfast is the remote store, used as applications use it: " +
        "`const lease = await locks.mutex(key).acquire(); await lease.release()`. Unary gRPC is `AcquireDetached` and `Release` of " +
        "the same server, two calls a cycle. The libraries over Redis are what `npm run bench -- redis` compares with, against a " +
        "redis-server of their own.",
      `Everybody takes a turn in each of ${sizes.rounds} rounds after a warm-up, and each round is divided by its neighbour: what disturbs ` +
        "the machine disturbs both. At half load, cycles begin at their rate whether or not those before have ended, and count from when " +
        `they were due; each of ${sizes.rounds} rounds is a second long and has a percentile of its own.`,
      `Of the ${whole(sizes.many.clients)} clients each has a connection and a session of its own; they are in ${sizes.many.processes} ` +
        "processes, and are watched for two renewal periods. The memory is that of the whole process of the server, after a collection.",
    ],
  };
}
