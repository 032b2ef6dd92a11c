/** A database that is a map in this process, and a driver for it: all that a driver has to do, in the fewest words. */
import type { CasDriver, Change, ChangeResult, OnWake, SwapBatch } from "holdfast/cas";

interface Row {
  readonly version: bigint;
  readonly text: string;
  readonly idle: boolean;
  readonly keepUntilMs: number;
}

/** What a server would keep. Several drivers over one of these are as many processes. */
export class MapDatabase {
  readonly rows = new Map<string, Row>();
  readonly listeners = new Map<string, OnWake>();
  /** One counter for all keys, so that a version does not come back with a key that was removed. */
  versions = 0n;
  /** The server's clock. */
  readonly nowMs: () => number;

  constructor(nowMs: () => number = Date.now) {
    this.nowMs = nowMs;
  }
}

export function mapDriver(database: MapDatabase): CasDriver {
  const { rows, listeners } = database;

  /** Nothing comes between its lines, so it is atomic, and so is the look at the clock. */
  function make(change: Change, { earliestMs, latestMs }: SwapBatch): ChangeResult {
    const { key, expected, text, idle, keepUntilMs, wakes } = change;
    const current = rows.get(key);
    if (current?.version !== expected) return { state: "conflict", current };
    if (text === undefined) return { state: "same" };
    const nowMs = database.nowMs();
    if (nowMs < earliestMs || nowMs > latestMs) return { state: "untimely" };
    const version = ++database.versions;
    rows.set(key, { version, text, idle, keepUntilMs });
    for (const { owner, id, fence } of wakes) listeners.get(owner)?.(key, id, fence);
    return { state: "swapped", version };
  }

  return {
    name: "map",
    durability: "ephemeral",
    checksTime: true,
    async read(keys) {
      return { nowMs: database.nowMs(), records: keys.map((key) => rows.get(key)) };
    },
    async swap(batch) {
      const results = batch.changes.map((change) => make(change, batch));
      return { nowMs: database.nowMs(), results };
    },
    async list(prefix, after, limit) {
      const records = [...rows]
        .filter(([key, row]) => !row.idle && key.startsWith(prefix))
        .filter(([key]) => after === undefined || byBytes(key, after) > 0)
        .sort(([a], [b]) => byBytes(a, b))
        .slice(0, limit)
        .map(([key, { text }]) => ({ key, text }));
      return { nowMs: database.nowMs(), records };
    },
    async sweep(limit) {
      const old = [...rows].filter(([, row]) => row.keepUntilMs < database.nowMs()).slice(0, limit);
      for (const [key] of old) rows.delete(key);
      return old.length;
    },
    async listen(owner, onWake) {
      listeners.set(owner, onWake);
      return () => {
        if (listeners.get(owner) === onWake) listeners.delete(owner);
      };
    },
  };
}

/** Not the order of JavaScript's strings, which is that of UTF-16. */
function byBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
