/** The methods that the store needs of the `mongodb` driver: commands, queries and change streams. */
import { classesOf, invalid } from "../../store/index.ts";
import { answered } from "./connections.ts";

export type Document = Readonly<Record<string, unknown>>;

/** A `MongoClient` of the `mongodb` driver. */
export interface MongodbClient {
  readonly options?: { readonly connectTimeoutMS?: number; readonly heartbeatFrequencyMS?: number };
  connect(): Promise<unknown>;
}

/** A `Db` of the `mongodb` driver, 6 or 7. */
export interface MongodbDatabase {
  readonly databaseName: string;
  /** Its client, which the store connects again after the client has given up. */
  readonly client?: MongodbClient;
  command(
    command: Record<string, unknown>,
    options?: { readPreference?: "primary"; signal?: AbortSignal },
  ): Promise<Document>;
  collection(name: string): Omit<MongodbCollection, "db">;
}

/** A `Collection` of the `mongodb` driver. Those of the first versions of 6 have no `db`. */
export interface MongodbCollection {
  readonly collectionName: string;
  readonly db: MongodbDatabase;
  find(
    filter: Record<string, unknown>,
    options?: Record<string, unknown>,
  ): { toArray(): Promise<Document[]> };
  watch(pipeline: Record<string, unknown>[], options?: Record<string, unknown>): MongodbChangeStream;
}

/** A `ChangeStream` of the driver. */
export interface MongodbChangeStream {
  readonly resumeToken: unknown;
  /** Emitted when the server has opened the stream, unless the first change arrives with the reply. */
  once(event: "resumeTokenChanged", listener: () => void): unknown;
  next(): Promise<Document>;
  close(): Promise<void>;
}

export interface Query {
  readonly filter: Document;
  readonly projection: Document;
  readonly sort?: Document;
  /** How many documents at most. */
  readonly limit: number;
}

/** The collection that holds the records. */
export interface Records {
  readonly name: string;
  /** Database and collection, for messages. */
  readonly namespace: string;
  command(command: Document): Promise<Document>;
  find(query: Query): Promise<readonly Document[]>;
  watch(pipeline: readonly Document[], options: Document): MongodbChangeStream;
}

/** Overrides settings of the database and the client: reads go to the primary, and values are those of JavaScript. */
const commandOptions = {
  readPreference: "primary",
  promoteValues: true,
  promoteLongs: true,
  ignoreUndefined: false,
  raw: false,
} as const;

/** A request that is not answered within `timeoutMs` is given up. */
export function recordsIn(
  target: MongodbDatabase | MongodbCollection,
  collection: string | undefined,
  timeoutMs: number,
): Records {
  const given = Object(target) as Partial<MongodbDatabase & MongodbCollection>;
  if (isDatabase(given)) return recordsOf(given, checkName(collection ?? "holdfast"), timeoutMs);
  if (!isDatabase(Object(given.db)) || typeof given.collectionName !== "string") throw wrongTarget(given);
  if (collection !== undefined) {
    throw invalid(
      `collection must be left out if a collection is passed, not ${JSON.stringify(collection)}.`,
    );
  }
  return recordsOf(given.db as MongodbDatabase, given.collectionName, timeoutMs);
}

function recordsOf(database: MongodbDatabase, name: string, timeoutMs: number): Records {
  const ask = <T>(send: (signal: AbortSignal) => Promise<T>) =>
    answered(database.client, timeoutMs, (signal) => connected(database, () => send(signal)));
  return {
    name,
    namespace: `${database.databaseName}.${name}`,
    command: (command) =>
      ask((signal) => database.command(command as Record<string, unknown>, { ...commandOptions, signal })),
    find({ filter, ...query }) {
      const options = {
        ...query,
        ...commandOptions,
        batchSize: query.limit,
        readConcern: { level: "local" },
      };
      return ask((signal) =>
        database
          .collection(name)
          .find(filter as Record<string, unknown>, { ...options, signal })
          .toArray(),
      );
    },
    watch: (pipeline, options) =>
      database
        .collection(name)
        .watch(pipeline as Record<string, unknown>[], options as Record<string, unknown>),
  };
}

/**
 * Asks, and connects a client that has given up. A driver that finds no server when it first connects answers all requests with
 * `MongoTopologyClosedError` until `connect` is called.
 *
 * A client that the application closes answers a waiting request with the same error, and must stay closed. It answers the next request
 * with `MongoNotConnectedError`. Asking twice is safe: the error comes before the request is sent.
 */
async function connected<T>(database: MongodbDatabase, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!hasNoTopology(error)) throw error;
  }
  try {
    return await ask();
  } catch (error) {
    if (!hasNoTopology(error) || database.client === undefined) throw error;
    await database.client.connect();
  }
  return ask();
}

function hasNoTopology(error: unknown): boolean {
  return classesOf(error).includes("MongoTopologyClosedError");
}

function isDatabase(given: Partial<MongodbDatabase>): given is MongodbDatabase {
  return (
    typeof given.command === "function" &&
    typeof given.collection === "function" &&
    typeof given.databaseName === "string"
  );
}

function wrongTarget(given: object): Error {
  const isClient = typeof (given as { db?: unknown }).db === "function";
  const remedy = isClient
    ? "It is a MongoClient. Pass client.db()."
    : "Pass client.db() of the mongodb driver, version 6 or 7.";
  return invalid(`The first argument of mongodbStore must be a Db or a Collection. ${remedy}`);
}

function checkName(name: string): string {
  const isName = typeof name === "string" && /^[A-Za-z_][\w.-]{0,119}$/.test(name);
  if (isName && !name.startsWith("system.") && !name.endsWith(".")) return name;
  throw invalid(
    `collection must be 1 to 120 letters, digits, "_", "-" and ".", beginning with a letter or "_", not with "system." and not ending in ".", not ${JSON.stringify(name)}.`,
  );
}
