/** The statements of the store, each with the values that it takes. All values are texts, so that any client can pass them. */
import { bounds } from "../../core/index.ts";
import type { SwapBatch } from "../cas/index.ts";
import type { TableNames } from "./table.ts";
import { channelOf, payloadOf } from "./wakes.ts";

export interface Statement {
  readonly text: string;
  readonly values: string[];
}

/** The clock at the moment it is asked for. `now()` would be that of the beginning of the transaction. */
const nowMs = "(extract(epoch from clock_timestamp()) * 1000)::float8";

/** Neither keys nor records contain one: keys have no control characters, and JSON writes them as escapes. */
const LINE = "\n";

export interface ReadRow {
  readonly now_ms: number | string;
  /** Null in the only row where there is no record at all. */
  readonly key: string | null;
  readonly version: string;
  readonly record: string;
}

export function readStatement({ table }: TableNames, keys: readonly string[]): Statement {
  const text = `select clock.now_ms, lock.key, lock.version::text, lock.record
from (select ${nowMs} as now_ms) as clock
left join ${table} as lock on lock.key = any (string_to_array($1, E'\\n'))`;
  return { text, values: [keys.join(LINE)] };
}

export interface SwapRow {
  readonly now_ms: number | string;
  readonly untimely: boolean;
  readonly conflicts: string | null;
}

export function swapStatement({ swap }: TableNames, batch: SwapBatch, version: string): Statement {
  const { changes, earliestMs, latestMs } = batch;
  const isUpdates = changes.every(({ expected, text }) => expected !== undefined && text !== undefined);
  const wakes = changes.flatMap((change, index) =>
    change.wakes.map((wake) => ({
      number: String(index + 1),
      channel: channelOf(wake.owner),
      payload: payloadOf(change.key, wake),
    })),
  );
  return {
    text: `select now_ms, untimely, conflicts from ${swap}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    values: [
      changes.map(({ key }) => key).join(LINE),
      changes.map(({ expected }) => expected ?? "").join(LINE),
      changes.map(({ text }) => text ?? "").join(LINE),
      changes.map(({ idle }) => (idle ? "t" : "f")).join(LINE),
      changes.map(({ keepUntilMs }) => keepUntilMs).join(LINE),
      isUpdates ? String(changes.length) : "0",
      version,
      String(earliestMs),
      String(latestMs),
      wakes.map(({ number }) => number).join(LINE),
      wakes.map(({ channel }) => channel).join(LINE),
      wakes.map(({ payload }) => payload).join(LINE),
    ],
  };
}

export interface ListRow {
  readonly now_ms: number | string;
  readonly key: string | null;
  readonly record: string;
}

/** No key that begins with a prefix comes after the prefix with as many of the last characters as fit into a key. */
const LAST_CHARACTERS = "\u{10FFFF}".repeat(bounds.keyBytes / 4);

export function listStatement(
  { table }: TableNames,
  prefix: string,
  after: string | undefined,
  limit: number,
): Statement {
  const text = `select clock.now_ms, lock.key, lock.record
from (select ${nowMs} as now_ms) as clock
left join lateral (
  select key, record from ${table}
  where key >= $1 and key <= $2 and key > $3 and starts_with(key, $1) and not idle
  order by key limit $4::int
) as lock on true
order by lock.key`;
  return { text, values: [prefix, `${prefix}${LAST_CHARACTERS}`, after ?? "", String(limit)] };
}

export interface SweepRow {
  readonly removed: number | string;
}

/** Passes over what somebody is changing, so it waits for nobody and cannot be part of a deadlock. */
export function sweepStatement({ table }: TableNames, limit: number): Statement {
  const text = `with old as (
  select key from ${table}
  where keep_until_ms < (select ${nowMs})
  limit $1::int
  for update skip locked
), removed as (
  delete from ${table} as lock using old where lock.key = old.key returning 1
)
select count(*)::int as removed from removed`;
  return { text, values: [String(limit)] };
}
