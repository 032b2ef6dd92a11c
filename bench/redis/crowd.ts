/** What an operation costs the server on a key with a crowd, by the same on a key with one. */
import { randomUUID } from "node:crypto";
import { type ClaimRequest, type Store, UNLIMITED } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Redis } from "ioredis";
import { difference, scriptCounts } from "./server-counts.ts";

export interface CrowdSizes {
  readonly crowd: number;
  readonly operations: number;
  readonly rounds: number;
}

export const verbs = ["acquire", "renew", "release"] as const;

export type Verb = (typeof verbs)[number];

/** Microseconds of the server for one operation, round by round. */
export type Costs = Readonly<Record<Verb, readonly { readonly crowd: number; readonly one: number }[]>>;

/** Whether the crowd waits for one holder, or holds together. */
export type CrowdKind = "waiters" | "readers";

/** How long the claims live: longer than all of the measurement, so that nobody has to renew them. */
const TTL_MS = 3_600_000;

/** Claims that travel together while the crowd gathers. */
const GATHERED_AT_ONCE = 1_000;

export async function measureCrowd(port: number, kind: CrowdKind, sizes: CrowdSizes): Promise<Costs> {
  const [client, admin] = [new Redis({ port }), new Redis({ port })];
  const store = redisStore(client, { maxWaiters: sizes.crowd * 2 + 10 });
  store.onGrant("bench", () => {});
  await gather(store, kind, `bench:${kind}:one`, 1);
  await gather(store, kind, `bench:${kind}:crowd`, sizes.crowd);
  const costs: Record<Verb, { crowd: number; one: number }[]> = { acquire: [], renew: [], release: [] };
  for (let round = -1; round < sizes.rounds; round++) {
    const one = await measureRound(store, admin, kind, `bench:${kind}:one`, sizes.operations);
    const crowd = await measureRound(store, admin, kind, `bench:${kind}:crowd`, sizes.operations);
    if (round < 0) continue;
    for (const verb of verbs) costs[verb].push({ crowd: crowd[verb], one: one[verb] });
  }
  await store.close();
  await admin.flushall();
  client.disconnect();
  admin.disconnect();
  return costs;
}

async function gather(store: Store, kind: CrowdKind, key: string, crowd: number): Promise<void> {
  if (kind === "waiters") await store.acquire(claim(key, kind));
  for (let left = crowd; left > 0; left -= GATHERED_AT_ONCE) {
    const count = Math.min(left, GATHERED_AT_ONCE);
    await Promise.all(Array.from({ length: count }, () => store.acquire(claim(key, kind))));
  }
}

/** One claim after the other joins the crowd, is renewed, and leaves, one call each. */
async function measureRound(
  store: Store,
  admin: Redis,
  kind: CrowdKind,
  key: string,
  operations: number,
): Promise<Record<Verb, number>> {
  const took = { acquire: 0, renew: 0, release: 0 };
  const cost = async (verb: Verb, work: () => Promise<unknown>) => {
    const before = await scriptCounts(admin);
    await work();
    took[verb] += difference(await scriptCounts(admin), before).usec / operations;
  };
  for (let operation = 0; operation < operations; operation++) {
    const request = claim(key, kind);
    await cost("acquire", () => store.acquire(request));
    await cost("renew", () => store.renew([request]));
    await cost("release", () => store.release([request]));
  }
  return took;
}

function claim(key: string, kind: CrowdKind): ClaimRequest {
  return {
    key,
    id: randomUUID(),
    token: randomUUID(),
    weight: 1,
    limit: kind === "waiters" ? 1 : UNLIMITED,
    priority: 0,
    ttlMs: TTL_MS,
    wait: true,
    owner: "bench",
    info: "",
    application: "bench",
  };
}
