/** One key that the workers of several processes want at once. */
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { Child } from "../child.ts";
import { quantileOf } from "../statistics.ts";
import type { ContenderProcess } from "./contender-process.ts";
import type { ContenderName } from "./contenders.ts";
import { countsOf } from "./server-counts.ts";

export interface HotKeySizes {
  readonly processes: number;
  readonly workers: number;
  readonly holdMs: number;
  readonly durationMs: number;
  readonly rounds: number;
}

/** What a round came to, over all processes. */
export interface Contest {
  readonly served: readonly number[];
  readonly waitsMs: readonly number[];
  /** What the wait of a fair queue would be: everybody's hold and one round trip each. */
  readonly fairWaitMs: number;
  readonly commandsPerHandoff: number;
}

/** Which commands a contender's client sends, as opposed to what its scripts do inside of the server. */
const sent: Partial<Record<ContenderName, readonly string[]>> = {
  Holdfast: ["evalsha", "eval", "subscribe"],
  "node-redlock": ["evalsha", "eval"],
  "redis-semaphore": ["set", "evalsha", "eval"],
  verrou: ["set", "eval"],
};

export async function measureHotKey(
  port: number,
  names: readonly ContenderName[],
  sizes: HotKeySizes,
): Promise<ReadonlyMap<ContenderName, readonly Contest[]>> {
  const contests = new Map(names.map((name) => [name, [] as Contest[]]));
  for (let round = 0; round < sizes.rounds; round++) {
    for (const name of names) contests.get(name)!.push(await contest(port, name, sizes));
  }
  return contests;
}

async function contest(port: number, name: ContenderName, sizes: HotKeySizes): Promise<Contest> {
  const { processes, workers, holdMs, durationMs } = sizes;
  const admin = new Redis({ port, host: "127.0.0.1" });
  const children = Array.from(
    { length: processes },
    () => new Child<ContenderProcess>(new URL("contender-process.js", import.meta.url)),
  );
  try {
    await admin.flushall();
    await Promise.all(children.map((child) => child.call("open", { port, name })));
    const roundTripMs = await medianRoundTripMs(admin);
    await admin.config("RESETSTAT");
    const untilMs = Date.now() + durationMs;
    const shares = await Promise.all(
      children.map((child) => child.call("work", { key: "bench:hot", workers, holdMs, untilMs })),
    );
    const { calls } = countsOf(await admin.info("commandstats"), sent[name] ?? []);
    const served = shares.flatMap((share) => share.served);
    const handoffs = Math.max(
      1,
      served.reduce((sum, each) => sum + each, 0),
    );
    const heldMs = shares.reduce((sum, share) => sum + share.heldMs, 0);
    return {
      served,
      waitsMs: shares.flatMap((share) => share.waitsMs),
      fairWaitMs: served.length * (heldMs / handoffs + roundTripMs),
      commandsPerHandoff: calls / handoffs,
    };
  } finally {
    for (const child of children) child.stop();
    admin.disconnect();
    // What the killed processes held is nobody's business in the next round.
    await sleep(100);
  }
}

async function medianRoundTripMs(admin: Redis): Promise<number> {
  const tookMs: number[] = [];
  for (let ping = 0; ping < 200; ping++) {
    const startMs = performance.now();
    await admin.ping();
    tookMs.push(performance.now() - startMs);
  }
  return quantileOf(tookMs, 0.5);
}
