/** The remote store side by side with one call for each step, and with the libraries over Redis. */
import { canRunRedis, startRedis } from "../../test/engines/redis.ts";
import { Child } from "../child.ts";
import { type Contender, type ContenderName, contenders } from "../redis/contenders.ts";
import { perSecond, type Report, type Row, type Target, whole } from "../report.ts";
import { ratioOf, spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import { type RemoteName, remoteContenders } from "./contenders.ts";
import { measureCycles, measureLatencyMs } from "./cycles.ts";
import type { ServerProcess } from "./server-process.ts";

interface Sizes {
  readonly callers: readonly number[];
  /** Cycles of a session in a round, for each number of callers; others do as many as take about as long. */
  readonly cycles: readonly number[];
  readonly unaryCycles: number;
  readonly rounds: number;
  readonly latencyMs: number;
}

const full: Sizes = {
  callers: [1, 10, 100],
  cycles: [1_000, 10_000, 30_000],
  unaryCycles: 1_000,
  rounds: 9,
  latencyMs: 3_000,
};
const small: Sizes = { callers: [1, 10], cycles: [20, 50], unaryCycles: 20, rounds: 2, latencyMs: 100 };

const WARM_UP_ROUNDS = 2;
const unary: readonly RemoteName[] = ["unary gRPC by grpc-js", "unary gRPC by Connect"];
const peers: readonly ContenderName[] = ["node-redlock", "redis-semaphore", "verrou"];

/** What a cycle took in each round, in nanoseconds, by contender. */
type Times = ReadonlyMap<string, readonly number[]>;

export const serverSuite: Suite = {
  name: "server",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    const child = new Child<ServerProcess>(new URL("server-process.ts", import.meta.url));
    const redis = canRunRedis() ? await startRedis() : undefined;
    const open = new Map<string, Contender>();
    try {
      const address = await child.call("start", undefined as never);
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
    ...(peer === undefined ? [] : [row(peer, isMost ? { atLeast: 2.5 } : undefined)]),
  ];
}

async function latencyRow(contender: Contender, cycleNs: number, sizes: Sizes): Promise<Row> {
  const rate = 1e9 / cycleNs / 2;
  await measureLatencyMs(contender, rate, sizes.latencyMs / 10);
  const p99Ms = await measureLatencyMs(contender, rate, sizes.latencyMs);
  return {
    what: `a cycle at half of that rate, ${whole(rate)}/s: 99th percentile`,
    figure: `${p99Ms.toFixed(1)} ms`,
    peer: "",
  };
}

/** What depends least on what else the machine does: the time of processors. */
async function costRows(contender: Contender, child: Child<ServerProcess>, sizes: Sizes): Promise<Row[]> {
  const callers = sizes.callers.at(-1)!;
  const cycles = sizes.cycles.at(-1)!;
  await child.call("used", undefined as never);
  const before = process.cpuUsage();
  await measureCycles(contender, "cost", callers, cycles);
  const { user, system } = process.cpuUsage(before);
  const server = await child.call("used", undefined as never);
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
        "the machine disturbs both. At half load, cycles begin at their rate whether or not those before have ended.",
    ],
  };
}
