/**
 * Every command that the store sends. docs/decisions/0009-mongodb-swaps.md says why they look as they do.
 *
 * A record is one document:
 *
 *     _id        the key
 *     version    made up anew for every write
 *     text       the record, see docs/record-format.md
 *     idle       whether it has no claims
 *     keepUntil  when it may be removed
 *     wakes      whom the latest write has granted the key, see wake-stream.ts; only in a replica set
 */
import type { Change, SwapBatch } from "../cas/index.ts";
import type { Document, Query, Records } from "./database.ts";

/**
 * The `_id` of a document that is in every collection of the store and that no statement may become. It is no text, so it
 * is nobody's key.
 */
export const MARKER: Document = { holdfast: "marker" };

/** A version that nothing has. */
const NO_VERSION = "";

/** What a refused statement of a batch is answered with: an _id that is there, or one that would have changed. */
export const refusals: ReadonlySet<number> = new Set([11_000, 66]);

/** What the server can do, and what it is to do. */
export interface WriteTerms {
  /** Whether statements compare the server's time. */
  readonly checksTime: boolean;
  /** Whether anybody can be told of a write by a stream of changes. */
  readonly streams: boolean;
  readonly timeoutMs: number;
}

/** A change, and the version that it writes. */
export interface Statement {
  readonly change: Change;
  readonly version: string;
}

/**
 * Makes each change whose document has the expected version.
 *
 * The reply counts only in total what was matched, so every statement that does not match has to fail instead, which is told
 * one by one. That is why all of them insert where nothing matches: a document that is there with another version
 * is in the way of that (error 11000), and an insert where there must be a document would have another `_id` than it asked for,
 * which the server refuses (error 66).
 */
export function updateCommand(
  { name }: Records,
  statements: readonly Statement[],
  batch: SwapBatch,
  terms: WriteTerms,
): Document {
  const updates = statements.map(({ change, version }) => ({
    q: { _id: change.key, version: change.expected ?? NO_VERSION },
    u: updateOf(change, version, batch, terms),
    upsert: true,
  }));
  return { update: name, updates, ordered: false, writeConcern: writeConcern(terms) };
}

function updateOf(change: Change, version: string, batch: SwapBatch, terms: WriteTerms): unknown {
  const refuseInsert = { $setOnInsert: { _id: MARKER } };
  if (change.text === undefined) return refuseInsert;
  const fields = fieldsOf(change, version, terms);
  if (terms.checksTime) return [{ $set: { _id: idInTime(change, batch), ...literals(fields) } }];
  return change.expected === undefined ? { $set: fields } : { $set: fields, ...refuseInsert };
}

function fieldsOf({ text, idle, keepUntilMs, wakes }: Change, version: string, terms: WriteTerms): Document {
  const fields = { version, text, idle, keepUntil: new Date(keepUntilMs) };
  if (!terms.streams) return fields;
  return { ...fields, wakes: JSON.stringify(wakes.map(({ owner, id }) => [owner, id])) };
}

/** The `_id` as it is while it is time and the document is what it must be, and otherwise one that the server refuses. */
function idInTime({ expected }: Change, { earliestMs, latestMs }: SwapBatch): Document {
  const conditions: Document[] = [
    { $gte: ["$$NOW", new Date(earliestMs)] },
    { $lte: ["$$NOW", new Date(latestMs)] },
  ];
  // Only what is about to be inserted has no text.
  if (expected !== undefined) conditions.push({ $eq: [{ $type: "$text" }, "string"] });
  return { $cond: [{ $and: conditions }, "$_id", { $literal: MARKER }] };
}

/** In a pipeline, text that begins with a dollar sign would be the name of a field. */
function literals(fields: Document): Document {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, { $literal: value }]));
}

/** Confirmed by a majority, each with the write on its disk. A server without replicas is its own majority. */
function writeConcern({ timeoutMs }: { readonly timeoutMs: number }): Document {
  return { w: "majority", j: true, wtimeout: timeoutMs };
}

/**
 * Reads what the primary has, also what no majority has confirmed yet: a swap that builds on that is confirmed only
 * together with it, and whoever lost a swap has to see what it lost to.
 */
export function findQuery(keys: readonly string[]): Query {
  return { filter: { _id: { $in: keys } }, projection: { version: 1, text: 1 }, limit: keys.length };
}

/** MongoDB compares texts by their bytes, unless the collection was made with a collation. */
export function listQuery(prefix: string, after: string | undefined, limit: number): Query {
  const end = endOfPrefix(prefix);
  const from = after === undefined || after < prefix ? { $gte: prefix } : { $gt: after };
  return {
    filter: { _id: end === undefined ? from : { ...from, $lt: end }, idle: false },
    projection: { version: 1, text: 1 },
    sort: { _id: 1 },
    limit,
  };
}

/** The first text after all that begin with the prefix; undefined where there is none. */
export function endOfPrefix(prefix: string): string | undefined {
  const points = [...prefix].map((character) => character.codePointAt(0) ?? 0);
  while (points.at(-1) === 0x10ffff) points.pop();
  const last = points.pop();
  if (last === undefined) return undefined;
  // Half of a pair is no character.
  return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1);
}

export function oldQuery(nowMs: number, limit: number): Query {
  return { filter: isOld(nowMs), projection: { _id: 1 }, limit };
}

/** Looks again at each one: it may have been used in between. */
export function deleteCommand(
  { name }: Records,
  ids: readonly unknown[],
  nowMs: number,
  timeoutMs: number,
): Document {
  const deletes = [{ q: { _id: { $in: ids }, ...isOld(nowMs) }, limit: 0 }];
  return { delete: name, deletes, ordered: false, writeConcern: writeConcern({ timeoutMs }) };
}

function isOld(nowMs: number): Document {
  return { keepUntil: { $lt: new Date(nowMs) } };
}

export function indexCommand({ name }: Records): Document {
  return { createIndexes: name, indexes: [{ key: { keepUntil: 1 }, name: "holdfast_keep_until" }] };
}

export function collectionCommand({ name }: Records): Document {
  return { listCollections: 1, filter: { name } };
}

export function indexesCommand({ name }: Records): Document {
  return { listIndexes: name };
}

/** Writes the marker, and asks for an insert that must be refused because of it. */
export function markCommand({ name }: Records, timeoutMs: number): Document {
  const absent = { _id: { holdfast: "nothing" }, version: NO_VERSION };
  const updates = [
    { q: { _id: MARKER }, u: { $set: { format: 1 } }, upsert: true },
    { q: absent, u: { $setOnInsert: { _id: MARKER } }, upsert: true },
  ];
  return { update: name, updates, ordered: false, writeConcern: writeConcern({ timeoutMs }) };
}

/** Asks for what a server that compares its time has to refuse, and any other server cannot understand. */
export function tooLateCommand({ name }: Records): Document {
  const id = { $cond: [{ $lte: ["$$NOW", new Date(0)] }, "$_id", { $literal: MARKER }] };
  const absent = { _id: { holdfast: "nothing" }, version: NO_VERSION };
  return { update: name, updates: [{ q: absent, u: [{ $set: { _id: id } }], upsert: true }] };
}
