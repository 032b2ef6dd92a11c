/** A lock server over memory, in a process of its own. */
import { memoryStore } from "holdfast";
import { startServer } from "holdfast/server";
import { pino } from "pino";
import { offer } from "../child.ts";

let usedUs = 0;

const functions = {
  async start(): Promise<{ url: string; port: number }> {
    const { url, port } = await startServer({
      store: memoryStore(),
      port: 0,
      logger: pino({ level: "silent" }),
    });
    return { url, port };
  },
  /** How much of a processor it has used since it was last asked, in microseconds. */
  async used(): Promise<number> {
    const { user, system } = process.cpuUsage();
    const since = user + system - usedUs;
    usedUs = user + system;
    return since;
  },
};

export type ServerProcess = typeof functions;

offer(functions);
