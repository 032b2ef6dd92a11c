/** The methods that the store needs of a client of `mysql2/promise`. */
import { HoldfastError, invalid, SilenceGuard, StoreUnavailableError } from "../../store/index.ts";
import { connectionsOf } from "./connections.ts";
import { mapError, serverErrno, wrongClient } from "./errors.ts";

/** A statement with the settings that make rows have one form over any connection. */
export interface MysqlQuery {
  sql: string;
  rowsAsArray: boolean;
  nestTables: false;
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

/** A pool, or a namespace of a pool cluster. */
export interface MysqlPool {
  getConnection(): Promise<MysqlPoolConnection>;
}

/** The client of `mysqlStore`. */
export type MysqlClient = MysqlPool | MysqlConnection;

/** A value of a row. Numbers may come as text, depending on how the connection is set. */
export type Cell = Buffer | number | string | null;
export type Row = readonly Cell[];

/** Sends one statement and resolves with all its result sets. */
export type Send = (sql: string) => Promise<readonly (readonly Row[])[]>;

/** Sends statements over a checked client. A request that is not answered within `timeoutMs` is given up. */
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

function isOfPg({ totalCount, escapeIdentifier }: Record<string, unknown>): boolean {
  return typeof totalCount === "number" || typeof escapeIdentifier === "function";
}

function isPool(client: MysqlClient): client is MysqlPool {
  return "getConnection" in client && typeof client.getConnection === "function";
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
      return resultSets(await connection.query(queryOf(sql)));
    });
  } catch (error) {
    throw isEnded(pool) && !isSent ? endedPool(error) : mapError(error);
  }
}

/** Whether the application has ended the pool. The errors of such a pool have no code. */
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

function throughConnection(connection: MysqlConnection, timeoutMs: number): Send {
  const guard = new SilenceGuard(
    timeoutMs,
    () =>
      new StoreUnavailableError(
        `The MySQL connection has not answered for ${timeoutMs} ms. Pass a pool, which replaces connections, or make a store over another connection.`,
      ),
  );
  return (sql) =>
    guard.watch(async () => {
      try {
        return resultSets(await promised(connection.query(queryOf(sql))));
      } catch (error) {
        if (interruptions.has(serverErrno(error) ?? 0)) {
          await connection.query(queryOf("rollback")).catch(() => {});
        }
        throw mapError(error);
      }
    });
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

/** A select has one result set. A call has several, followed by a header. */
function resultSets(reply: unknown): readonly (readonly Row[])[] {
  const rows: unknown = Array.isArray(reply) ? reply[0] : undefined;
  if (!Array.isArray(rows)) {
    // The reply to a statement without rows.
    if (typeof rows === "object" && rows !== null && "affectedRows" in rows) return [];
    throw wrongClient();
  }
  if (rows.length === 0) return [[]];
  if (!Array.isArray(rows[0])) throw wrongClient();
  return (Array.isArray(rows.at(-1)) ? [rows] : rows.slice(0, -1)) as readonly (readonly Row[])[];
}
