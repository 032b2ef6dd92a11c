/** The statements of the store, each with the values that it takes. All values are texts, so that any client can pass them. */
import { bounds } from "../../core/index.ts";
import { type Change, forgettableFromMs, type SwapBatch } from "../cas/index.ts";
import { TAKES_NO_WRITES } from "./hello.ts";
import type { TableNames } from "./table.ts";
import { channelOf, payloadOf } from "./wakes.ts";

export interface Statement {
  /** What a session may keep it under, where it is asked for all the time. */
  readonly name?: string;
  readonly text: string;
  readonly values: string[];
  /** What its first row has as `call`, so that the reply to another one is noticed. */
  readonly call?: string;
}

/** The clock at the moment it is asked for. `now()` would be that of the beginning of the transaction. */
const nowMs = "(extract(epoch from clock_timestamp()) * 1000)::float8";

/** One row with the time, and whether what is read beside it may be believed: a replica that lags would answer as well. */
const clock = `(select ${nowMs} as now_ms, ${TAKES_NO_WRITES} as read_only) as clock`;

/** Neither keys nor records contain one: keys have no control characters, and JSON writes them as escapes. */
const LINE = "\n";

export interface ReadRow {
  readonly now_ms: number | string;
  readonly read_only: boolean;
  /** Null in the only row where there is no record at all. */
  readonly key: string | null;
  readonly version: string;
  readonly record: string;
}

export function readStatement({ table }: TableNames, keys: readonly string[]): Statement {
  const text = `select clock.now_ms, clock.read_only, lock.key, lock.version::text, lock.record
from ${clock}
left join ${table} as lock on lock.key = any (string_to_array($1, E'\\n'))`;
  return { text, values: [keys.join(LINE)] };
}

export interface SwapRow {
  /** A {@link SwapReplyText} in JSON. */
  readonly reply: string;
}

export interface SwapReplyText {
  readonly now_ms: number;
  readonly untimely?: true;
  readonly conflicts?: readonly (readonly [index: number, version: string | null, record: string | null])[];
}

/** The changes must be in the order of {@link byBytes}. */
export function swapStatement(
  { swap, swapStatement: name }: TableNames,
  batch: SwapBatch,
  version: string,
): Statement {
  const { changes, earliestMs, latestMs } = batch;
  const keys: string[] = [];
  const records: string[] = [];
  const wakes: { readonly number: number; readonly channel: string; readonly payload: string }[] = [];
  let isUpdates = true;
  for (const { key, expected, text, wakes: woken } of changes) {
    if (expected === undefined || text === undefined) isUpdates = false;
    keys.push(key);
    records.push(text ?? "");
    for (const wake of woken) {
      wakes.push({ number: keys.length, channel: channelOf(wake.owner), payload: payloadOf(key, wake) });
    }
  }
  return {
    name,
    text: `select ${swap}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) as reply, $7::text as call`,
    call: version,
    values: [
      keys.join(LINE),
      ...((isUpdates && commonTerms(changes)) || ownTerms(changes)),
      records.join(LINE),
      isUpdates ? String(changes.length) : "0",
      version,
      String(earliestMs),
      String(latestMs),
      wakes.map(({ number }) => number).join(LINE),
      wakes.map(({ channel }) => channel).join(LINE),
      wakes.map(({ payload }) => payload).join(LINE),
      (forgettableFromMs(batch) ?? Number.POSITIVE_INFINITY) <= earliestMs ? "1" : "",
    ],
  };
}

/** Which versions changes expect, as numbers of the versions that follow, and for how long each is kept. */
type Terms = readonly [expects: string, versions: string, keeps: string];

/** Said once, where all of them have the same. What came together mostly has. */
function commonTerms(changes: readonly Change[]): Terms | undefined {
  const [first] = changes;
  if (first === undefined) return undefined;
  const { expected, idle, keepUntilMs } = first;
  for (const change of changes) {
    if (change.expected !== expected || change.idle !== idle || change.keepUntilMs !== keepUntilMs)
      return undefined;
  }
  return ["", expected as string, String(keepOf(first))];
}

function ownTerms(changes: readonly Change[]): Terms {
  const versions = new Numbers();
  const expects = changes.map(({ expected }) =>
    expected === undefined ? "" : versions.of(expected as string),
  );
  return [expects.join(LINE), versions.texts.join(LINE), changes.map(keepOf).join(LINE)];
}

function keepOf({ idle, keepUntilMs }: Change): number {
  return idle ? -1 - keepUntilMs : keepUntilMs;
}

/** Gives texts numbers from 1 on. What came together is expected together again, so a batch has few different ones. */
class Numbers {
  readonly texts: string[] = [];
  readonly #known = new Map<string, number>();

  of(text: string): number {
    let number = this.#known.get(text);
    if (number === undefined) {
      number = this.texts.push(text);
      this.#known.set(text, number);
    }
    return number;
  }
}

export interface ListRow {
  readonly now_ms: number | string;
  readonly read_only: boolean;
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
  const text = `select clock.now_ms, clock.read_only, lock.key, lock.record
from ${clock}
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

/**
 * Passes over what somebody is changing, so it waits for nobody and cannot be part of a deadlock. While somebody else sweeps it removes
 * nothing: a fleet that finds a million old rows would otherwise keep the server busy with nothing else.
 */
export function sweepStatement({ table }: TableNames, limit: number): Statement {
  const text = `with turn as materialized (
  select pg_try_advisory_xact_lock(hashtextextended($2, 0)) as is_mine
), old as (
  select key from ${table}
  where (select is_mine from turn) and keep_until_ms < (select ${nowMs})
  limit $1::int
  for update skip locked
), removed as (
  delete from ${table} as lock using old where lock.key = old.key returning 1
)
select count(*)::int as removed from removed`;
  return { text, values: [String(limit), `holdfast sweeps ${table}`] };
}

export function notifyStatement(channel: string, payload: string): Statement {
  return { text: "select pg_notify($1, $2)", values: [channel, payload] };
}
