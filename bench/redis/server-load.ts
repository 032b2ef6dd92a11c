/** How many commands the server gets from clients that only wait, or only keep what they have. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Lease } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { TTL_MS } from "./contenders.ts";
import { difference, scriptCounts } from "./server-counts.ts";

export interface WaitersSizes {
  readonly waiters: number;
  readonly durationMs: number;
}

/** Commands a second while that many wait for a key that somebody keeps. */
export async function measureWaiters(port: number, { waiters, durationMs }: WaitersSizes): Promise<number> {
  const [client, admin] = [connect(port), connect(port)];
  const locks = createLocks(redisStore(client));
  const held = await locks.mutex("bench:kept", { ttlMs: TTL_MS }).acquire();
  const waits = Array.from({ length: waiters }, () => locks.mutex("bench:kept", { ttlMs: TTL_MS }).acquire());
  for (const wait of waits) wait.catch(() => {});
  while (locks.stats().waiting < waiters) await sleep(10);
  const before = await scriptCounts(admin);
  const startMs = performance.now();
  await sleep(durationMs);
  const { calls } = difference(await scriptCounts(admin), before);
  const tookMs = performance.now() - startMs;
  if (!held.held) throw new Error("The kept lease was lost.");
  await locks.close();
  client.disconnect();
  admin.disconnect();
  return (calls / tookMs) * 1_000;
}

export interface RenewalsSizes {
  readonly leases: number;
  readonly ttlMs: number;
}

export interface RenewalsLoad {
  readonly commands: number;
  /** What a library sends that renews lease by lease. */
  readonly renewals: number;
}

/** Commands of one renewal period, of leases that were acquired evenly over another. */
export async function measureRenewals(port: number, { leases, ttlMs }: RenewalsSizes): Promise<RenewalsLoad> {
  const [client, admin] = [connect(port), connect(port)];
  const locks = createLocks(redisStore(client));
  const periodMs = ttlMs / 3;
  const held: Lease[] = [];
  const startMs = performance.now();
  while (held.length < leases) {
    const due = Math.min(leases, ((performance.now() - startMs) / periodMs) * leases);
    const missing = Array.from({ length: Math.ceil(due) - held.length }, (_, nth) =>
      locks.mutex(`bench:held:${held.length + nth}`, { ttlMs }).acquire(),
    );
    held.push(...(await Promise.all(missing)));
    await sleep(10);
  }
  await sleep(periodMs);
  const [before, renewed] = [await scriptCounts(admin), locks.stats().renewals];
  await sleep(periodMs);
  const { calls } = difference(await scriptCounts(admin), before);
  const { renewals, lost } = locks.stats();
  if (lost > 0) throw new Error(`${lost} leases were lost.`);
  await Promise.all(held.map((lease) => lease.release()));
  await locks.close();
  client.disconnect();
  admin.disconnect();
  return { commands: calls, renewals: renewals - renewed };
}

function connect(port: number): Redis {
  return new Redis({ port, host: "127.0.0.1" });
}
