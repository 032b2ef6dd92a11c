/**
 * The statements of the store, as whole texts.
 *
 * Keys and records go into them as hexadecimal digits, so the character set and the `sql_mode` of a session do not matter. Statements
 * outside of procedures have a limit, because `sql_select_limit` may be lower.
 */
import type { Change, SwapBatch, Version } from "../cas/index.ts";
import type { TableNames } from "./table.ts";

/** Microseconds since 1970. Constant within a statement, and not touched by the time zone of the session. */
export const NOW_US = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";

/** One row at least: time, autocommit, and if there is a record its key, version and text. */
export function readStatement({ rows }: TableNames, keys: readonly string[]): string {
  const wanted = keys.length === 0 ? "false" : `t.lock_key in (${keys.map(bytes).join(", ")})`;
  return `select ${NOW_US}, @@autocommit, t.lock_key, hex(t.version), cast(t.record as binary)
from (select 1) one left join ${rows} t on ${wanted} limit ${Math.max(keys.length, 1)}`;
}

/** Rows as of {@link readStatement}, in the order of the keys. */
export function listStatement(
  { rows }: TableNames,
  prefix: string,
  after: string | undefined,
  limit: number,
): string {
  const conditions = ["idle = 0"];
  if (prefix !== "") conditions.push(`lock_key >= ${bytes(prefix)}`, `lock_key < ${afterAll(prefix)}`);
  if (after !== undefined) conditions.push(`lock_key > ${bytes(after)}`);
  const page = `select lock_key, version, record from ${rows} where ${conditions.join(" and ")} order by lock_key limit ${limit}`;
  return `select ${NOW_US}, @@autocommit, t.lock_key, hex(t.version), cast(t.record as binary)
from (select 1) one left join (${page}) t on true order by t.lock_key limit ${Math.max(limit, 1)}`;
}

export function sweepStatement({ sweep }: TableNames, limit: number): string {
  return `call ${sweep}(${limit})`;
}

/** The first text after all keys with the prefix. No text in UTF-8 has the byte 255, so the last byte can grow. */
function afterAll(prefix: string): string {
  const end = Buffer.from(prefix);
  const last = end.length - 1;
  end.writeUInt8(end.readUInt8(last) + 1, last);
  return `x'${end.toString("hex")}'`;
}

/** A text that is not empty, as a literal of bytes without quotation marks. */
export function bytes(text: string): string {
  return `0x${Buffer.from(text).toString("hex")}`;
}

/** The longest statement: records as hexadecimal digits, and for each change a key of 512 bytes, up to eight times. */
export function maxSwapBytes(recordBytes: number, changes: number): number {
  return 2 * recordBytes + 9_216 * changes;
}

/** A change with its key as a literal. */
interface Keyed extends Change {
  readonly literal: string;
}

/**
 * A batch of changes as one call of the procedure: statements that write, and one that reads the outcome. They travel inside of a
 * literal, so they contain no quotation marks.
 */
export function swapStatement(
  { rows, swap }: TableNames,
  { changes, earliestMs, latestMs }: SwapBatch,
  version: Version,
): string {
  const ordered = inOrder(changes);
  const next = `0x${version}`;
  const writes = runsOf(ordered).map((run) =>
    isNew(run[0] as Keyed) ? insertOf(rows, run, next) : updateOf(rows, run, next),
  );
  const others = writes.slice(1).map((write) => `${write};`);
  return `call ${swap}(_binary'${writes[0] ?? ""}', _binary'${others.join("")}', ${changes.length}, _binary'${comparisonOf(rows, ordered, next)}', ${earliestMs}, ${latestMs})`;
}

/** All batches lock rows in the order of the keys' bytes, so they do not wait for each other. Digits have the order of their bytes. */
function inOrder(changes: readonly Change[]): readonly Keyed[] {
  const keyed = changes.map((change) => ({ ...change, literal: bytes(change.key) }));
  return keyed.sort((a, b) => (a.literal < b.literal ? -1 : 1));
}

/** Neighbours of one kind, which one statement can write in order. */
function runsOf(changes: readonly Keyed[]): readonly (readonly Keyed[])[] {
  const runs: Keyed[][] = [];
  for (const change of changes) {
    if (change.text === undefined) continue;
    const run = runs.at(-1);
    if (run?.[0] !== undefined && isNew(run[0]) === isNew(change)) run.push(change);
    else runs.push([change]);
  }
  return runs;
}

function isNew({ expected }: Change): boolean {
  return expected === undefined;
}

/** Ignores keys that others have inserted in the meantime. There are no other errors to ignore: the values fit. */
function insertOf(table: string, changes: readonly Keyed[], next: string): string {
  const rows = changes.map(
    (change) =>
      `(${change.literal},${next},${recordOf(change)},${idleOf(change)},${change.keepUntilMs},${secondOf(change)})`,
  );
  return `insert ignore into ${table} (lock_key,version,record,idle,keep_until_ms,keep_until_second) values ${rows.join(",")}`;
}

/** Along the primary key, so that rows are locked in its order. */
function updateOf(table: string, changes: readonly Keyed[], next: string): string {
  const set = [
    `version=${next}`,
    `record=${byKey(changes, recordOf)}`,
    `idle=${byKey(changes, idleOf)}`,
    `keep_until_ms=${byKey(changes, ({ keepUntilMs }) => `${keepUntilMs}`)}`,
    `keep_until_second=${byKey(changes, secondOf)}`,
  ];
  return `update ${table} force index (primary) set ${set.join(",")} where lock_key in (${keysOf(changes)}) and version=${byKey(changes, expectedOf)}`;
}

/** A row for each existing record: its key and version, and its text if the version is neither the old nor the new one. */
function comparisonOf(table: string, changes: readonly Keyed[], next: string): string {
  const isKnown = `version=${next} or version=${byKey(changes, expectedOf)}`;
  return `select lock_key,hex(version),if(${isKnown},null,cast(record as binary)) from ${table} where lock_key in (${keysOf(changes)})`;
}

/** An expression with one value for each key. */
function byKey(changes: readonly Keyed[], of: (change: Keyed) => string): string {
  const values = changes.map(of);
  const [first = "null"] = values;
  if (values.every((value) => value === first)) return first;
  return `case lock_key ${changes.map(({ literal }, place) => `when ${literal} then ${values[place]}`).join(" ")} end`;
}

function keysOf(changes: readonly Keyed[]): string {
  return changes.map(({ literal }) => literal).join(",");
}

function recordOf({ text = "" }: Change): string {
  return bytes(text);
}

function expectedOf({ expected }: Change): string {
  return expected === undefined ? "null" : `0x${expected}`;
}

function idleOf({ idle }: Change): string {
  return idle ? "1" : "0";
}

function secondOf({ keepUntilMs }: Change): string {
  return `${Math.floor(keepUntilMs / 1_000)}`;
}
