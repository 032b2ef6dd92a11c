/** An honest client beside callers that take all they can get from the same server. */
import { Child } from "../child.ts";
import type { Report, Row } from "../report.ts";
import { whole } from "../report.ts";
import type { ServerProcess } from "../server/server-process.ts";
import { spreadOf } from "../statistics.ts";
import type { Suite } from "../suite.ts";
import type { CrowdProcess } from "./crowd-process.ts";
import type { Cycles, HonestProcess } from "./honest-process.ts";

const full = {
  waiters: 4_000,
  watchers: 200,
  keys: 3_000,
  leases: 100,
  ttlMs: 2_000,
  aloneMs: 5_000,
  arrivalMs: 15_000,
  durationMs: 20_000,
};
const small = {
  waiters: 20,
  watchers: 5,
  keys: 30,
  leases: 5,
  ttlMs: 2_000,
  aloneMs: 200,
  arrivalMs: 200,
  durationMs: 500,
};
type Sizes = typeof full;

const none = undefined as never;

export const crowdSuite: Suite = {
  name: "crowd",
  async run({ quick, progress }) {
    const sizes = quick ? small : full;
    const server = new Child<ServerProcess>(new URL("../server/server-process.js", import.meta.url));
    const honest = new Child<HonestProcess>(new URL("honest-process.js", import.meta.url));
    const crowd = new Child<CrowdProcess>(new URL("crowd-process.js", import.meta.url));
    try {
      const { url } = await server.call("start", {});
      await honest.call("hold", { url, ...sizes });
      await crowd.call("fill", { url, ...sizes });
      progress("The honest client alone …");
      const alone = await honest.call("cycle", { durationMs: sizes.aloneMs });
      progress("The crowd comes …");
      const arrival = honest.call("cycle", { durationMs: sizes.arrivalMs });
      await crowd.call("come", { url, ...sizes });
      const arriving = await arrival;
      progress("Both …");
      await crowd.call("counts", none);
      await server.call("used", none);
      const looksBefore = await looksOf(url);
      const both = await honest.call("cycle", { durationMs: sizes.durationMs });
      const { cpuUs, elapsedMs, longestDelayMs } = await server.call("used", none);
      const seconds = elapsedMs / 1_000;
      const looks = ((await looksOf(url)) - looksBefore) / seconds;
      const { events, failures } = await crowd.call("counts", none);
      const lost = await honest.call("lost", none);
      const rows: Row[] = [
        cyclesRow("a cycle, 100 a second, alone", alone),
        cyclesRow("the same while the crowd comes, all at once", arriving),
        cyclesRow("the same with the crowd there", both, 50),
        {
          what: `leases lost, of ${sizes.leases} with a ttl of ${sizes.ttlMs / 1_000} s`,
          figure: `${lost}`,
          peer: "",
          result: spreadOf([lost]),
          target: { atMost: 0 },
        },
        {
          what: "events sent to the crowd, a second",
          figure: whole(events / seconds),
          peer: `calls that failed: ${failures}`,
        },
        { what: "looks at the store, a second", figure: looks.toFixed(1), peer: "" },
        {
          what: "processor of the server, as a fraction of one core",
          figure: (cpuUs / 1_000 / elapsedMs).toFixed(2),
          peer: `its event loop was late by ${longestDelayMs.toFixed(0)} ms at most`,
        },
      ];
      return reportOf(rows, sizes);
    } finally {
      for (const each of [crowd, honest, server]) each.stop();
    }
  },
};

function cyclesRow(what: string, { p50Ms, p99Ms, maxMs }: Cycles, atMost?: number): Row {
  return {
    what: `${what}: 99th percentile`,
    figure: `${p99Ms.toFixed(1)} ms`,
    peer: `median ${p50Ms.toFixed(1)} ms, longest ${maxMs.toFixed(0)} ms`,
    ...(atMost !== undefined && { result: spreadOf([p99Ms]), target: { atMost } }),
  };
}

async function looksOf(url: string): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return Number(/^holdfast_store_seconds_count\{verb="look"\} (\d+)$/m.exec(metrics)?.[1]);
}

function reportOf(rows: readonly Row[], sizes: Sizes): Report {
  return {
    title: "A crowd on the lock server",
    rows,
    method: [
      `The crowd is a process with ${whole(sizes.waiters)} calls of \`Acquire\` that wait for one key, which is handed on twice a second, and ` +
        `${whole(sizes.watchers)} calls of \`Watch\` for ${whole(sizes.keys)} keys, of which 100 change every second. The server is over memory.`,
      `The honest client is another process: ${sizes.leases} leases, and a hundred cycles of acquire and release a second. Cycles begin whether or not ` +
        "those before have ended, and count from when they were due.",
    ],
  };
}
