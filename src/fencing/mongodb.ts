/**
 * Fenced writes to documents of MongoDB, which keep the fence beside the data.
 *
 * A change of one document is atomic: the comparison in its filter and the write are one. What is left is the first write of a
 * document, by two at once (an older holder O with fence 5, a newer one N with 6, both with `upsert`):
 *
 * - Neither finds the document, and both insert it. One of them gets a duplicate key, which says nothing about fences. So it is
 *   tried again, now with a document to compare with: N then replaces O's, and O is refused by N's.
 * - O's filter does not match because N has written. An upsert would insert a second document, and gets a duplicate key, as
 *   `_id` or another unique index of the filter is there. O looks for a newer fence, and is told STALE_FENCE.
 */
import { HoldfastError, invalid } from "../store/index.ts";
import { type Fenced, fenceOf, StaleFenceError } from "./fence.ts";

/** A filter, an update or a document. */
export type MongodbDocument = Readonly<Record<string, unknown>>;

export interface MongodbFenceOptions {
  /** The field that holds the fence. Default "fence". */
  readonly field?: string;
}

export interface FencedUpdateOptions extends MongodbFenceOptions {
  /** Whether a document is made where the filter finds none. The filter must then name it by `_id` or a unique index. Default false. */
  readonly upsert?: boolean;
  /** Passed on to the driver, as `{ session }` is. */
  readonly driver?: MongodbDocument;
}

/** What `updateOne` of the driver tells, as far as it is used. */
export interface MongodbUpdateResult {
  readonly matchedCount: number;
  readonly upsertedCount: number;
}

/** A `Collection` of the `mongodb` driver, 6 or 7. */
export interface MongodbFencedCollection<R extends MongodbUpdateResult = MongodbUpdateResult> {
  updateOne(filter: never, update: never, options?: never): Promise<R>;
  findOne(filter: never, options?: never): Promise<unknown>;
}

/** How often a document may appear and vanish again before that is left to the caller. */
const ATTEMPTS = 5;
const DUPLICATE_KEY = 11_000;

/**
 * The filter, narrowed to documents that no newer fence has written. A document without the field counts as never written. One
 * whose field is anything but a whole number is not matched.
 *
 * @example
 * await reports.updateOne(fencedFilter({ _id: 7 }, lease), fencedUpdate({ $set: { body } }, lease));
 */
export function fencedFilter(
  filter: MongodbDocument,
  lease: Fenced,
  options: MongodbFenceOptions = {},
): Record<string, unknown> {
  const field = fieldOf(options);
  checkDocument("filter", filter);
  if (field in filter)
    throw invalid(`filter must not have "${field}", because the fence is compared with that field.`);
  return { ...filter, [field]: { $not: refused(fenceOf(lease)) } };
}

/** Matches a field that keeps this fence from writing. The driver sends a bigint as 64 bits. */
function refused(fence: bigint): MongodbDocument {
  // Of a list, the other two would match any element.
  const isOlder = { $type: ["int", "long"], $lte: fence, $not: { $type: "array" } };
  return { $exists: true, $not: isOlder };
}

/** The update, and the fence with it. Takes operators (`$set` and the like), or the stages of a pipeline. */
export function fencedUpdate(
  update: MongodbDocument,
  lease: Fenced,
  options?: MongodbFenceOptions,
): Record<string, unknown>;
export function fencedUpdate(
  update: readonly MongodbDocument[],
  lease: Fenced,
  options?: MongodbFenceOptions,
): Record<string, unknown>[];
export function fencedUpdate(
  update: MongodbDocument | readonly MongodbDocument[],
  lease: Fenced,
  options?: MongodbFenceOptions,
): Record<string, unknown> | Record<string, unknown>[];
export function fencedUpdate(
  update: MongodbDocument | readonly MongodbDocument[],
  lease: Fenced,
  options: MongodbFenceOptions = {},
): Record<string, unknown> | Record<string, unknown>[] {
  const mark = { [fieldOf(options)]: fenceOf(lease) };
  if (Array.isArray(update)) return [...(update as readonly MongodbDocument[]), { $set: mark }];
  checkDocument("update", update as MongodbDocument);
  const operators = update as MongodbDocument;
  const plain = Object.keys(operators).find((name) => !name.startsWith("$"));
  if (plain !== undefined) {
    throw invalid(
      `update must consist of operators like $set, not of the field "${plain}". To replace a document, put the fence into the new one and use fencedFilter.`,
    );
  }
  return { ...operators, $set: { ...(operators["$set"] as MongodbDocument | undefined), ...mark } };
}

/**
 * Updates one document unless a newer fence has written it before, and throws STALE_FENCE then. What else the driver throws
 * comes as it is. Where the filter finds no document at all, the result says so: `matchedCount` is 0.
 *
 * @example
 * await fencedUpdateOne(reports, { _id: "7" }, { $set: { body } }, lease, { upsert: true });
 */
export async function fencedUpdateOne<R extends MongodbUpdateResult>(
  collection: MongodbFencedCollection<R>,
  filter: MongodbDocument,
  update: MongodbDocument | readonly MongodbDocument[],
  lease: Fenced,
  options: FencedUpdateOptions = {},
): Promise<R> {
  checkCollection(collection);
  const { upsert = false, driver = {} } = options;
  if (upsert && Object.keys(filter).length === 0) {
    throw invalid("filter must name the document, for instance by _id, because upsert may insert it.");
  }
  const fence = fenceOf(lease);
  // From here on the fence of this one moment: a lease that is won again in between has another.
  const own = { fence };
  const fenced = fencedFilter(filter, own, options);
  const changes = fencedUpdate(update, own, options);
  for (let attempt = 1; ; attempt++) {
    try {
      const result = await collection.updateOne(
        fenced as never,
        changes as never,
        { ...driver, upsert } as never,
      );
      if (result.matchedCount === 0 && result.upsertedCount === 0)
        await refuseStale(collection, filter, fence, options);
      return result;
    } catch (error) {
      if ((Object(error) as { code?: unknown }).code !== DUPLICATE_KEY) throw error;
      await refuseStale(collection, filter, fence, options);
      // Nobody newer has written: somebody made the document at the same moment, or another index of the caller's is in the way.
      if (attempt === ATTEMPTS || inTransaction(driver)) throw error;
    }
  }
}

/** Throws if the document that the filter names keeps the fence from writing. Asks the primary, and outside of a transaction that has failed. */
async function refuseStale(
  collection: MongodbFencedCollection,
  filter: MongodbDocument,
  fence: bigint,
  options: MongodbFenceOptions,
): Promise<void> {
  const field = fieldOf(options);
  const found = await collection.findOne(
    { ...filter, [field]: refused(fence) } as never,
    { projection: { [field]: 1 }, readPreference: "primary", promoteValues: false } as never,
  );
  if (found === null || found === undefined) return;
  const name = "_id" in filter ? String(filter["_id"]) : JSON.stringify(Object.keys(filter));
  const mark = (found as MongodbDocument)[field];
  const { _bsontype: type } = Object(mark) as { _bsontype?: unknown };
  if (type === "Long" || type === "Int32") throw new StaleFenceError(name, fence, BigInt(String(mark)));
  throw new HoldfastError(
    "STORE_FAILURE",
    `The field "${field}" of the document "${name}" holds something else than a fence, so nothing was written. Put the fence of the last write there as a 64-bit integer, or remove the field once nobody writes.`,
    { key: name },
  );
}

/** A transaction that has met an error is over, so there is nothing to try again in it. */
function inTransaction(driver: MongodbDocument): boolean {
  const { inTransaction } = Object(driver["session"]) as { inTransaction?: () => boolean };
  return typeof inTransaction === "function" && inTransaction.call(driver["session"]);
}

function fieldOf({ field = "fence" }: MongodbFenceOptions): string {
  if (typeof field === "string" && /^[^$.\0][^.\0]*$/.test(field) && field !== "_id") return field;
  throw invalid(`field must be the name of a field without dots and a leading "$", not ${String(field)}.`);
}

function checkDocument(name: string, document: MongodbDocument): void {
  if (typeof document === "object" && document !== null && !Array.isArray(document)) return;
  throw invalid(`${name} must be an object, not ${document === null ? "null" : typeof document}.`);
}

function checkCollection(collection: MongodbFencedCollection): void {
  const { updateOne, findOne } = Object(collection) as Record<string, unknown>;
  if (typeof updateOne === "function" && typeof findOne === "function") return;
  throw invalid("collection must be a Collection of the mongodb driver, version 6 or 7.");
}
