/** A lock server over memory, in a process of its own. */
import { monitorEventLoopDelay } from "node:perf_hooks";
import { memoryStore } from "holdfast";
import { type ServerLimits, startServer } from "holdfast/server";
import { pino } from "pino";
import { offer } from "../child.ts";

/** What the process has used since it was last asked. */
export interface Usage {
  /** Time of the processor, in microseconds. */
  readonly cpuUs: number;
  /** Of the clock. */
  readonly elapsedMs: number;
  /** By how much the event loop was late at worst. */
  readonly longestDelayMs: number;
}

const RESOLUTION_MS = 10;
const delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
delay.enable();
let usedUs = 0;
let askedMs = performance.now();

const functions = {
  async start(limits: ServerLimits): Promise<{ url: string; port: number }> {
    const { url, port } = await startServer({
      store: memoryStore(),
      port: 0,
      limits,
      logger: pino({ level: "silent" }),
    });
    return { url, port };
  },
  async used(): Promise<Usage> {
    const { user, system } = process.cpuUsage();
    const nowMs = performance.now();
    const usage = {
      cpuUs: user + system - usedUs,
      elapsedMs: nowMs - askedMs,
      // The monitor counts its own interval as well.
      longestDelayMs: Math.max(0, delay.max / 1e6 - RESOLUTION_MS),
    };
    usedUs = user + system;
    askedMs = nowMs;
    delay.reset();
    return usage;
  },
  /** The memory of the whole process, in bytes, after what is unreachable has been collected. */
  async memory(): Promise<number> {
    globalThis.gc?.();
    return process.memoryUsage().rss;
  },
};

export type ServerProcess = typeof functions;

offer(functions);
