/** What an operation costs the server on a key with a crowd, by the same on a key with one other. */
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
  // A crowd does not notice who else joins. One that is alone would, so every claim joins another.
  const crowded = Array.from({ length: JOINING }, () => `bench:${kind}:crowd`);
  const lonely = Array.from({ length: JOINING }, (_, nth) => `bench:${kind}:one:${nth}`);
  for (const key of lonely) await gather(store, kind, key, 1);
  await gather(store, kind, `bench:${kind}:crowd`, sizes.crowd);
  const costs: Record<Verb, { crowd: number; one: number }[]> = { acquire: [], renew: [], release: [] };
  for (let round = -1; round < sizes.rounds; round++) {
    const one = await measureRound(store, admin, kind, lonely, sizes.operations);
    const crowd = await measureRound(store, admin, kind, crowded, sizes.operations);
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

/** Claims that join before the first of them leaves. */
const JOINING = 10;

/**
 * Some claims join those of these keys, are renewed, and leave, one call each. The server is asked what that took after several calls: to ask
 * after every one would slow the next down by half, because the answer pushes the script out of the processor's caches.
 */
async function measureRound(
  store: Store,
  admin: Redis,
  kind: CrowdKind,
  keys: readonly string[],
  operations: number,
): Promise<Record<Verb, number>> {
  const took = { acquire: 0, renew: 0, release: 0 };
  const groups = Math.ceil(operations / JOINING);
  const cost = async (
    verb: Verb,
    work: (request: ClaimRequest) => Promise<unknown>,
    requests: ClaimRequest[],
  ) => {
    const before = await scriptCounts(admin);
    for (const request of requests) await work(request);
    took[verb] += difference(await scriptCounts(admin), before).usec / (groups * JOINING);
  };
  for (let group = 0; group < groups; group++) {
    const requests = keys.map((key) => claim(key, kind));
    await cost("acquire", (request) => store.acquire(request), requests);
    await cost("renew", (request) => store.renew([request]), requests);
    await cost("release", (request) => store.release([request]), requests);
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
