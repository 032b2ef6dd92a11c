/**
 * The commands of the store, and how it reads their replies. docs/decisions/0009-mongodb-swaps.md has the reasons.
 *
 * A record is one document:
 *
 *     _id        the key
 *     version    unique for every write
 *     text       the record, see docs/record-format.md
 *     idle       whether it has no claims
 *     keepUntil  when it may be removed
 *     wakes      owners and ids of the claims that the latest write has granted; only in a replica set
 */
import { StoreUnavailableError } from "../../store/index.ts";
import type { Change, SwapBatch } from "../cas/index.ts";
import type { Document, Query, Records } from "./client.ts";
import { mapError } from "./errors.ts";

/** The `_id` of a document in every collection of the store. It is no text, so it is no key. */
export const MARKER: Document = { holdfast: "marker" };

/** No document has this version. */
const NO_VERSION = "";

/** The errors of a refused statement: the _id exists, or it would change. */
export const refusals: ReadonlySet<number> = new Set([11_000, 66]);

export interface WriteTerms {
  /** Whether statements compare the server's time. */
  readonly checksTime: boolean;
  /** Whether the server has change streams. */
  readonly streams: boolean;
  readonly timeoutMs: number;
}

export interface Statement {
  readonly change: Change;
  readonly version: string;
}

/**
 * Makes each change whose document has the expected version.
 *
 * The reply counts matches only in total, but reports each error. So every statement that does not match must fail: it inserts. An
 * existing document with another version refuses the insert (11000). If a document must exist, the insert asks for another `_id` than
 * its query, which the server refuses (66).
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

/** The unchanged `_id` if the time and the document are right, and otherwise an `_id` that the server refuses. */
function idInTime({ expected }: Change, { earliestMs, latestMs }: SwapBatch): Document {
  const conditions: Document[] = [
    { $gte: ["$$NOW", new Date(earliestMs)] },
    { $lte: ["$$NOW", new Date(latestMs)] },
  ];
  // Only a document that is about to be inserted has no text.
  if (expected !== undefined) conditions.push({ $eq: [{ $type: "$text" }, "string"] });
  return { $cond: [{ $and: conditions }, "$_id", { $literal: MARKER }] };
}

/** In a pipeline, a text that begins with a dollar sign would be the name of a field. */
function literals(fields: Document): Document {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, { $literal: value }]));
}

/** A majority has the write on its disks. A server without replicas is its own majority. */
function writeConcern({ timeoutMs }: { readonly timeoutMs: number }): Document {
  return { w: "majority", j: true, wtimeout: timeoutMs };
}

/** Also reads records that no majority has confirmed: a swap that builds on one is confirmed only together with it. */
export function findQuery(keys: readonly string[]): Query {
  return { filter: { _id: { $in: keys } }, projection: { version: 1, text: 1 }, limit: keys.length };
}

/** MongoDB compares texts by their bytes, except in a collection with a collation. */
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

/** The first text after all with the prefix; undefined if there is none. */
export function endOfPrefix(prefix: string): string | undefined {
  const points = [...prefix].map((character) => character.codePointAt(0) ?? 0);
  while (points.at(-1) === 0x10ffff) points.pop();
  const last = points.pop();
  if (last === undefined) return undefined;
  // Half of a surrogate pair is no character.
  return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1);
}

export function oldQuery(nowMs: number, limit: number): Query {
  return { filter: isOld(nowMs), projection: { _id: 1 }, limit };
}

/** Compares again: a record may have been used in between. */
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

/** Writes the marker, and attempts an insert that the marker must refuse. */
export function markCommand({ name }: Records, timeoutMs: number): Document {
  const absent = { _id: { holdfast: "nothing" }, version: NO_VERSION };
  const updates = [
    { q: { _id: MARKER }, u: { $set: { format: 1 } }, upsert: true },
    { q: absent, u: { $setOnInsert: { _id: MARKER } }, upsert: true },
  ];
  return { update: name, updates, ordered: false, writeConcern: writeConcern({ timeoutMs }) };
}

/** A server that compares its time refuses this, and other servers do not understand it. */
export function tooLateCommand({ name }: Records): Document {
  const id = { $cond: [{ $lte: ["$$NOW", new Date(0)] }, "$_id", { $literal: MARKER }] };
  const absent = { _id: { holdfast: "nothing" }, version: NO_VERSION };
  return { update: name, updates: [{ q: absent, u: [{ $set: { _id: id } }], upsert: true }] };
}

/** The error codes of refused statements, by their index in the batch. */
export function refusedBy(reply: Document): ReadonlyMap<number, number> {
  const errors = (reply["writeErrors"] ?? []) as readonly { readonly index: number; readonly code: number }[];
  return new Map(errors.map(({ index, code }) => [index, code]));
}

/** The same for swaps: every statement must have changed one document or have failed, or the outcome is unknown. */
export function refusedOf(reply: Document, statements: readonly Statement[]): ReadonlyMap<number, number> {
  // Some versions of the driver throw this error, others leave it in the reply.
  const unconfirmed = reply["writeConcernError"];
  if (unconfirmed !== undefined) {
    const error = new Error("No majority confirmed the write.", { cause: unconfirmed });
    error.name = "MongoWriteConcernError";
    throw mapError(error);
  }
  const refused = new Map(refusedBy(reply));
  const made = Number(reply["n"]);
  if (made + refused.size !== statements.length) {
    throw new StoreUnavailableError(
      `MongoDB reported ${made} changes as made and ${refused.size} as refused, out of ${statements.length}. Which it made is unknown.`,
    );
  }
  for (const index of insertedBy(reply)) {
    // The document became the marker, which another program had removed. Only servers that resemble MongoDB allow that.
    if (statements[index]?.change.expected !== undefined) refused.set(index, DUPLICATE_KEY);
  }
  return refused;
}

const DUPLICATE_KEY = 11_000;

function insertedBy(reply: Document): readonly number[] {
  const inserted = (reply["upserted"] ?? []) as readonly { readonly index: number }[];
  return inserted.map(({ index }) => index);
}
