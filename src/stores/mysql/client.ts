/**
 * What the store needs of a client, as `mysql2/promise` offers it. It is not imported: the application brings its own, and
 * these types name the few methods that are called.
 */

import { systemClock } from "../../platform/index.ts";
import { HoldfastError, invalid, StoreUnavailableError } from "../../store/index.ts";
import { Connections } from "./connections.ts";
import { mapError, serverErrno } from "./errors.ts";

/** What a statement is sent with. Whatever the connection is set to, the rows come back in the same form. */
export interface MysqlQuery {
  sql: string;
  rowsAsArray: boolean;
  nestTables: false;
  /** There are none, so the client need not look for where to put them. */
  values: null;
  namedPlaceholders: false;
  typeCast(field: unknown, next: () => unknown): unknown;
}

/** A single connection. When it breaks, it stays broken: a pool is better. */
export interface MysqlConnection {
  query(query: MysqlQuery): Promise<[unknown, unknown]>;
}

/** A connection that a pool lends. */
export interface MysqlPoolConnection extends MysqlConnection {
  release(): void;
  destroy(): void;
}

/** A pool, or what `of` of a pool cluster returns. */
export interface MysqlPool {
  getConnection(): Promise<MysqlPoolConnection>;
}

/** What `mysqlStore` takes. */
export type MysqlClient = MysqlPool | MysqlConnection;

/** A value of a row. Numbers may come as text, depending on how the connection is set. */
export type Cell = Buffer | number | string | null;
export type Row = readonly Cell[];

/** Sends one statement and resolves with all its result sets. */
export type Send = (sql: string) => Promise<readonly (readonly Row[])[]>;

/** For a client that was checked. After `timeoutMs`, an answer is not waited for any more. */
export function sender(client: MysqlClient, timeoutMs: number): Send {
  if (isPool(client)) return (sql) => sendThroughPool(client, sql, timeoutMs);
  return throughConnection(client, timeoutMs);
}

export function checkClient(client: MysqlClient): MysqlClient {
  const given = Object(client) as Record<string, unknown>;
  const { query, getConnection, promise } = given;
  if (typeof promise === "function") {
    throw invalid(
      "client must be a Pool or Connection of mysql2/promise. This client is of mysql2. Pass client.promise().",
    );
  }
  if (isOfPg(given)) {
    throw invalid(
      "client must be a Pool or Connection of mysql2/promise. This client is of pg. Pass it to postgresStore.",
    );
  }
  if (typeof query === "function" || typeof getConnection === "function") return client;
  throw invalid(
    `client must be a Pool or Connection of mysql2/promise, not ${client === null ? "null" : typeof client}.`,
  );
}

/** By what those alone have: a pool counts its clients, and a client escapes identifiers under this name. */
function isOfPg({ totalCount, escapeIdentifier }: Record<string, unknown>): boolean {
  return typeof totalCount === "number" || typeof escapeIdentifier === "function";
}

function isPool(client: MysqlClient): client is MysqlPool {
  return "getConnection" in client && typeof client.getConnection === "function";
}

const pools = new WeakMap<MysqlPool, Connections<MysqlPoolConnection>>();

/** One for all stores over a pool, as the pool tells each who listens to it of its new connections. */
function connectionsOf(pool: MysqlPool): Connections<MysqlPoolConnection> {
  const known = pools.get(pool) ?? new Connections(pool);
  pools.set(pool, known);
  return known;
}

async function sendThroughPool(
  pool: MysqlPool,
  sql: string,
  timeoutMs: number,
): Promise<readonly (readonly Row[])[]> {
  if (isEnded(pool)) throw endedPool();
  let isSent = false;
  try {
    return await connectionsOf(pool).use(timeoutMs, async (connection) => {
      isSent = true;
      if (typeof connection !== "object") throw wrongClient();
      return resultSets(await connection.query(queryOf(sql)));
    });
  } catch (error) {
    throw isEnded(pool) && !isSent ? endedPool(error) : mapError(error);
  }
}

/** Whether the user has closed it for good. Its errors have no code that would say so. */
function isEnded(client: MysqlPool): boolean {
  const { pool } = client as { pool?: { _closed?: unknown } };
  return pool?._closed === true;
}

function endedPool(cause?: unknown): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The MySQL pool was ended. Create a store over another pool, and close the store before the pool.",
    { cause },
  );
}

/** Errors after which a transaction may still be open, because the procedure was stopped from outside. */
const interruptions = new Set([1317, 1969, 3024]);

/**
 * A connection that was silent for `timeoutMs` may stay so for a quarter of an hour, and makes no other. Requests fail at once until it
 * answers, or they would pile up in it.
 */
function throughConnection(connection: MysqlConnection, timeoutMs: number): Send {
  let unanswered = 0;
  let heardMs = 0;
  return async (sql) => {
    if (unanswered === 0) heardMs = systemClock.monotonicMs();
    else if (systemClock.monotonicMs() - heardMs >= timeoutMs) throw silentConnection(timeoutMs);
    unanswered++;
    try {
      return resultSets(await promised(connection.query(queryOf(sql))));
    } catch (error) {
      const errno = serverErrno(error);
      if (errno !== undefined && interruptions.has(errno)) {
        await connection.query(queryOf("rollback")).catch(() => {});
      }
      throw mapError(error);
    } finally {
      unanswered--;
      heardMs = systemClock.monotonicMs();
    }
  };
}

function silentConnection(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `The MySQL connection has not answered for ${timeoutMs} ms. Pass a pool, which replaces connections, or make a store over another connection.`,
  );
}

function queryOf(sql: string): MysqlQuery {
  return {
    sql,
    rowsAsArray: true,
    nestTables: false,
    values: null,
    namedPlaceholders: false,
    typeCast: (_, next) => next(),
  };
}

/** A client with callbacks returns something else. */
function promised<T>(answer: Promise<T>): Promise<T> {
  if (typeof (Object(answer) as { then?: unknown }).then === "function") return answer;
  throw wrongClient();
}

/** A select has one result set. A call has several, and behind them something that is none. */
function resultSets(reply: unknown): readonly (readonly Row[])[] {
  const rows: unknown = Array.isArray(reply) ? reply[0] : undefined;
  if (!Array.isArray(rows)) {
    // What a statement without rows answers.
    if (typeof rows === "object" && rows !== null && "affectedRows" in rows) return [];
    throw wrongClient();
  }
  if (rows.length === 0) return [[]];
  if (!Array.isArray(rows[0])) throw wrongClient();
  return (Array.isArray(rows.at(-1)) ? [rows] : rows.slice(0, -1)) as readonly (readonly Row[])[];
}

function wrongClient(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The client does not answer like a Pool or Connection of mysql2/promise. Pass one of these.",
  );
}
