/** How many commands the server gets from clients that only wait, or only keep what they have. */
import { createConnection } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { type Contender, type ContenderName, contenders, TTL_MS } from "./contenders.ts";

export interface WaitersSizes {
  readonly waiters: number;
  readonly durationMs: number;
}

/** Commands a second while that many wait for a key that somebody keeps. */
export async function measureWaiters(port: number, { waiters, durationMs }: WaitersSizes): Promise<number> {
  const client = connect(port);
  const locks = createLocks(redisStore(client));
  const held = await locks.mutex("bench:kept", { ttlMs: TTL_MS }).acquire();
  const waits = Array.from({ length: waiters }, () => locks.mutex("bench:kept", { ttlMs: TTL_MS }).acquire());
  for (const wait of waits) wait.catch(() => {});
  while (locks.stats().waiting < waiters) await sleep(10);
  const startMs = performance.now();
  const commands = await commandsSent(port, () => sleep(durationMs));
  const tookMs = performance.now() - startMs;
  if (!held.held) throw new Error("The kept lease was lost.");
  await locks.close();
  client.disconnect();
  return (commands / tookMs) * 1_000;
}

export interface RenewalsSizes {
  readonly leases: number;
  readonly ttlMs: number;
  /** How often the peer renews each lease, which is for how long all are watched. */
  readonly refreshMs: number;
}

/** Commands of each contender while it keeps leases that it acquired evenly over some time, for as long again. */
export async function measureRenewals<Name extends ContenderName>(
  port: number,
  names: readonly Name[],
  sizes: RenewalsSizes,
): Promise<Readonly<Record<Name, number>>> {
  const commands: Partial<Record<Name, number>> = {};
  for (const name of names) {
    const contender = await contenders[name](port, sizes);
    commands[name] = await commandsOfKeeping(port, contender, sizes);
    await contender.close();
  }
  return commands as Record<Name, number>;
}

async function commandsOfKeeping(port: number, contender: Contender, sizes: RenewalsSizes): Promise<number> {
  const { leases, refreshMs } = sizes;
  const releases: (() => Promise<unknown>)[] = [];
  const startMs = performance.now();
  while (releases.length < leases) {
    const due = Math.min(leases, ((performance.now() - startMs) / refreshMs) * leases);
    const missing = Array.from({ length: Math.ceil(due) - releases.length }, (_, nth) =>
      contender.acquire(`bench:held:${releases.length + nth}`),
    );
    releases.push(...(await Promise.all(missing)));
    await sleep(10);
  }
  const commands = await commandsSent(port, () => sleep(refreshMs));
  const released = await Promise.allSettled(releases.map((release) => release()));
  // Whatever gives back a lease that was lost says so: Holdfast by false, redis-semaphore by an error or by nothing.
  const lost = released.filter((each) => each.status === "rejected" || each.value === false).length;
  if (lost > 0) throw new Error(`${lost} leases were lost.`);
  return commands;
}

/**
 * How many commands clients send while somebody works. What scripts do inside of the server is told as well, and left out. By a bare
 * connection: ioredis fails where a command of somebody else is told in the same piece as the answer to `MONITOR`.
 */
async function commandsSent(port: number, work: () => Promise<unknown>): Promise<number> {
  const socket = createConnection(port, "127.0.0.1");
  const lines = createInterface({ input: socket });
  let commands = 0;
  const isWatching = new Promise<void>((resolve, reject) => {
    socket.once("error", reject);
    lines.on("line", (line) => {
      if (line === "+OK") resolve();
      else if (!line.includes(" lua] ")) commands++;
    });
  });
  socket.write("MONITOR\r\n");
  await isWatching;
  await work();
  socket.destroy();
  return commands;
}

function connect(port: number): Redis {
  return new Redis({ port, host: "127.0.0.1" });
}
