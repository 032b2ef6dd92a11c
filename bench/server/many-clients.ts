/** What a server costs that many clients are connected to, each with a connection of its own and one lease to keep. */
import { Child } from "../child.ts";
import type { ClientsProcess } from "./clients-process.ts";
import type { ServerProcess } from "./server-process.ts";

export interface ManyClientsSizes {
  readonly clients: number;
  /** How many processes the clients are in. */
  readonly processes: number;
  readonly ttlMs: number;
  /** Over how long they connect, and for how long they are watched then. */
  readonly spreadMs: number;
  readonly watchMs: number;
}

export interface ManyClientsResult {
  readonly idleBytes: number;
  readonly connectedBytes: number;
  /** Time of the server's processor, as a fraction of one core. */
  readonly cpu: number;
  readonly longestDelayMs: number;
  /** Heartbeats that the server confirmed, by those that were due. */
  readonly renewed: number;
  readonly lost: number;
}

/** Files that a process has open besides its connections. */
const OTHER_FILES = 200;

export async function measureManyClients(sizes: ManyClientsSizes): Promise<ManyClientsResult> {
  const { clients, processes, ttlMs, spreadMs, watchMs } = sizes;
  const server = new Child<ServerProcess>(new URL("server-process.js", import.meta.url));
  const holders = Array.from(
    { length: processes },
    () => new Child<ClientsProcess>(new URL("clients-process.js", import.meta.url)),
  );
  try {
    const { url } = await server.call("start", { maxConnections: clients + OTHER_FILES });
    const idleBytes = await server.call("memory", undefined as never);
    const count = Math.ceil(clients / processes);
    await Promise.all(
      holders.map((each, index) => each.call("hold", { url, name: `${index}`, count, ttlMs, spreadMs })),
    );
    const before = await renewalsOf(url);
    await server.call("used", undefined as never);
    await new Promise((resolve) => setTimeout(resolve, watchMs));
    const { cpuUs, elapsedMs, longestDelayMs } = await server.call("used", undefined as never);
    const renewals = (await renewalsOf(url)) - before;
    const held = await Promise.all(holders.map((each) => each.call("held", undefined as never)));
    return {
      idleBytes,
      connectedBytes: await server.call("memory", undefined as never),
      cpu: cpuUs / 1_000 / elapsedMs,
      longestDelayMs,
      renewed: renewals / ((count * processes * elapsedMs) / (ttlMs / 3)),
      lost: count * processes - held.reduce((sum, each) => sum + each, 0),
    };
  } finally {
    for (const each of holders) each.stop();
    server.stop();
  }
}

async function renewalsOf(url: string): Promise<number> {
  const metrics = await (await fetch(`${url}/metrics`)).text();
  return Number(/^holdfast_renewals_total (\d+)$/m.exec(metrics)?.[1]);
}
