/** The statements of the store, each with its values. All values are texts, so any client can pass them. */
import { bounds, StoreUnavailableError } from "../../store/index.ts";
import type { Change, SwapBatch } from "../cas/index.ts";
import { checkSession, checkWritable, NOW_US, type SessionFacts, TAKES_NO_WRITES } from "./readiness.ts";
import type { TableNames } from "./table.ts";
import { channelOf, payloadOf } from "./wake.ts";

export interface Statement {
  /** A session may keep the statement under this name. */
  readonly name?: string;
  readonly text: string;
  /** Without any, the text may be several statements. */
  readonly values?: string[];
  /** Throws if the first row shows that the reply must not be trusted. The connection is not used again. */
  readonly check?: (row: unknown) => void;
}

/** One row with the time and facts about the session: the reply of a replica that lags must not be trusted. */
const clock = `(select ${NOW_US} as now_us, ${TAKES_NO_WRITES} as read_only, pg_client_encoding()::text as encoding) as clock`;

/** Separates the items of a list. Keys have no control characters, and JSON escapes them in records. */
const LINE = "\n";

export interface ReadRow extends SessionFacts {
  readonly now_us: number | string;
  /** Null in the only row if there is no record at all. */
  readonly key: string | null;
  readonly version: string;
  readonly record: string;
}

export function readStatement({ table }: TableNames, keys: readonly string[]): Statement {
  const text = `select clock.*, lock.key, lock.version::text, lock.record
from ${clock}
left join ${table} as lock on lock.key = any (string_to_array($1, E'\\n'))`;
  return { text, values: [keys.join(LINE)], check: checkRead };
}

function checkRead(row: unknown): void {
  checkSession(row as SessionFacts);
  checkWritable(row as SessionFacts);
}

export interface SwapRow {
  readonly new_version: string;
  /** A {@link SwapReplyText} in JSON. */
  readonly reply: string;
}

export interface SwapReplyText {
  readonly now_us: number;
  readonly untimely?: true;
  readonly conflicts?:
    | readonly (readonly [index: number, version: string | null, record: string | null])[]
    | null;
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
    text: `call ${swap}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, null)`,
    check: (row) => checkReplyTo(version, row as SwapRow),
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
    ],
  };
}

/**
 * Replies carry no request id. (1) Sessions end or requests are cancelled behind PgBouncer 1.18. (2) A request gets the reply to another,
 * even of another process. (3) A change counts as made that was not. So each reply repeats the version of its call.
 */
function checkReplyTo(version: string, row: SwapRow): void {
  if (row.new_version === version) return;
  throw new StoreUnavailableError(
    "The PostgreSQL client returned the reply to another request. The result of this request is unknown. Update pg, or report the defect.",
  );
}

/** The versions that changes expect, as numbers of the listed versions, and how long each record is kept. */
type Terms = readonly [expects: string, versions: string, keeps: string];

/** One value for all changes, if they have it in common. */
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

/** Numbers texts from 1 on. Records that were written together have the same version, so a batch has few versions. */
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

/**
 * Compares keys by their bytes in UTF-8, which have the order of code points. Every batch takes its keys in this order, so no two batches
 * wait for each other. JavaScript compares halves of surrogate pairs, which come before the last characters without a pair.
 */
export function byBytes(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) {
    const one = a.charCodeAt(at);
    const other = b.charCodeAt(at);
    if (one !== other) return rank(one) - rank(other);
  }
  return a.length - b.length;
}

function rank(unit: number): number {
  if (unit < 0xd800) return unit;
  return unit < 0xe000 ? unit + 0x2000 : unit - 0x800;
}

export interface ListRow extends SessionFacts {
  readonly now_us: number | string;
  readonly key: string | null;
  readonly record: string;
}

/** No key that begins with a prefix comes after the prefix and these. */
const LAST_CHARACTERS = "\u{10FFFF}".repeat(bounds.keyBytes / 4);

export function listStatement(
  { table }: TableNames,
  prefix: string,
  after: string | undefined,
  limit: number,
): Statement {
  const text = `select clock.*, lock.key, lock.record
from ${clock}
left join lateral (
  select key, record from ${table}
  where key >= $1 and key <= $2 and key > $3 and starts_with(key, $1) and not idle
  order by key limit $4::int
) as lock on true
order by lock.key`;
  return {
    text,
    values: [prefix, `${prefix}${LAST_CHARACTERS}`, after ?? "", String(limit)],
    check: checkRead,
  };
}

export interface SweepRow {
  readonly removed: number | string;
}

/**
 * Skips locked rows, so it never waits and cannot be part of a deadlock. It removes nothing while another process sweeps: a fleet that
 * finds a million old rows would otherwise keep the server busy.
 */
export function sweepStatement({ table }: TableNames, limit: number): Statement {
  const text = `with turn as materialized (
  select pg_try_advisory_xact_lock(hashtextextended($2, 0)) as is_mine
), old as (
  select key from ${table}
  where (select is_mine from turn) and keep_until_ms < (select ${NOW_US} / 1000)
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
