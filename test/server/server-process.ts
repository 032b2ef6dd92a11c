/** A lock server in a process of its own, over memory, which tells its parent what it keeps. */

import { pino } from "pino";
import { memoryStore } from "../../src/index.ts";
import { type ServerLimits, startServer } from "../../src/server/index.ts";

/** The resources of a server's process. */
export interface ServerState {
  readonly rss: number;
  readonly heapUsed: number;
  readonly external: number;
  /** Open handles, by the names of Node. */
  readonly handles: Readonly<Record<string, number>>;
  /** Timers that are set, those of Node itself left out. */
  readonly timers: number;
  /** Keys in the store with holders or waiters. */
  readonly keys: number;
}

const timers = new Set<unknown>();
const { setTimeout: set, clearTimeout: clear } = globalThis;
globalThis.setTimeout = Object.assign((work: () => void, ms?: number) => {
  const timer = set(() => {
    timers.delete(timer);
    work();
  }, ms);
  timers.add(timer);
  return timer;
}, set);
globalThis.clearTimeout = (timer) => {
  timers.delete(timer);
  clear(timer);
};

const limits = JSON.parse(process.argv[2] ?? "{}") as ServerLimits;
const store = memoryStore();
const logger = pino({ level: "silent" });
const server = await startServer({ store, port: 0, logger, limits });

async function state(): Promise<ServerState> {
  globalThis.gc?.();
  const { keys } = await store.look({ prefix: "", limit: 1_000, maxClaims: 0 });
  const handles: Record<string, number> = {};
  for (const name of process.getActiveResourcesInfo()) handles[name] = (handles[name] ?? 0) + 1;
  const { rss, heapUsed, external } = process.memoryUsage();
  const taken = keys.filter(({ heldCount, waitingCount }) => heldCount + waitingCount > 0);
  return { rss, heapUsed, external, handles, timers: timers.size, keys: taken.length };
}

process.on("message", async (message: "memory" | "stop") => {
  if (message === "memory") process.send?.(await state());
  else {
    await server.stop({ graceMs: 0 });
    process.disconnect();
  }
});
// Without its parent it is of no use.
process.on("disconnect", () => process.exit());
process.send?.({ url: server.url, port: server.port });
