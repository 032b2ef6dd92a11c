/**
 * What may stand in Redis: the hash of locks, with those records that have claims and the mark of the fences; the keys of those that are
 * spread, each with a time to live; and the number of partitions that all stores agree on.
 */
import type { Redis } from "ioredis";
import type { LockRecord } from "../../../src/record/record.ts";

export const LOCKS = "holdfast:{0}:locks";
/** Written with the first use of a store. */
const AGREEMENT = "holdfast:{0}:partitions";
const BELONGING = /^holdfast:\{0\}:[a-z]+:(.*)$/s;

const LIST = `
local found = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  found[#found + 1] = { key, redis.call('PTTL', key) }
end
return found`;

/** Between the real time and that of the histories. */
const FAR_MS = 10 * 365 * 86_400_000;

/** `latestMs` is the latest time at which a key may have been written, on the clock of the history. Nothing is said of `damaged` locks. */
export async function assertKeys(
  redis: Redis,
  records: ReadonlyMap<string, LockRecord>,
  latestMs: number,
  damaged: ReadonlySet<string>,
): Promise<void> {
  const found = (await redis.eval(LIST, 0)) as [key: string, ttlMs: number][];
  for (const [key, ttlMs] of found) {
    if (key === AGREEMENT) continue;
    if (key === LOCKS) {
      if (ttlMs !== -1) throw new Error("The locks of the partition will expire.");
      continue;
    }
    const [, name = ""] = BELONGING.exec(key) ?? [];
    if (damaged.has(name)) continue;
    const record = records.get(name);
    if (record === undefined) throw new Error(`Redis has ${key}, of a record that has no claim.`);
    assertKept(key, ttlMs, record, latestMs);
  }
  const locks = new Set(await redis.hkeys(LOCKS));
  locks.delete("");
  for (const name of locks) {
    if (!records.has(name) && !damaged.has(name))
      throw new Error(`Redis has a lock ${name}, of a record that has no claim.`);
  }
  for (const name of records.keys()) {
    if (!locks.has(name) && !damaged.has(name))
      throw new Error(`Redis has no record of ${name}, which has claims.`);
  }
}

/** A key must be there for as long as its last claim is. */
function assertKept(key: string, ttlMs: number, record: LockRecord, latestMs: number): void {
  if (ttlMs < 0) throw new Error(`Redis has ${key} without a time to live.`);
  const lastMs = Math.max(...[...record.held, ...record.queue].map((claim) => claim.expiresAtMs));
  // Where the script named a point in time, it did so on the clock of the history.
  const keptMs = ttlMs > FAR_MS ? Date.now() + ttlMs - latestMs : ttlMs;
  const neededMs = lastMs - latestMs;
  if (keptMs < neededMs)
    throw new Error(`Redis keeps ${key} for ${keptMs} ms, and it is needed for ${neededMs}.`);
}
