/**
 * A batch of changes as one call of the procedure: statements that write, and one that tells what became of them.
 *
 * The statements go to the procedure inside of a literal, so they have no quotation marks in them: all their values are
 * numbers and hexadecimal digits.
 */
import type { Change, SwapBatch, Version } from "../cas/index.ts";
import type { TableNames } from "./table.ts";

/**
 * How long a statement may get: records in hexadecimal digits, and for each of so many changes a key of 512 bytes, which may
 * have to be named eight times, and whatever else belongs to it.
 */
export function maxSwapBytes(recordBytes: number, changes: number): number {
  return 2 * recordBytes + 9_216 * changes;
}

/** A change with its key as a literal. */
interface Keyed extends Change {
  readonly literal: string;
}

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

/**
 * Everybody locks rows in the order of their keys' bytes, so nobody waits for somebody who waits for them. Digits have the
 * order of the bytes that they stand for.
 */
function inOrder(changes: readonly Change[]): readonly Keyed[] {
  const keyed = changes.map((change) => ({ ...change, literal: literalOf(change.key) }));
  return keyed.sort((a, b) => (a.literal < b.literal ? -1 : 1));
}

/** Neighbours of one kind, which one statement can write without leaving the order. */
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

/** Leaves alone what others have made in the meantime. Whatever else can be ignored does not happen: the values fit. */
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

/** A row for each record that there is: its key and version, and its text where the version is neither the old nor the new one. */
function comparisonOf(table: string, changes: readonly Keyed[], next: string): string {
  const isKnown = `version=${next} or version=${byKey(changes, expectedOf)}`;
  return `select lock_key,hex(version),if(${isKnown},null,cast(record as binary)) from ${table} where lock_key in (${keysOf(changes)})`;
}

/** What a row gets by its key. Mostly it is the same for all. */
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
  return literalOf(text);
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

function literalOf(text: string): string {
  return `0x${Buffer.from(text).toString("hex")}`;
}
