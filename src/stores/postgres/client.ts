/** The methods that the store needs of a client: `pg` as it is, or an object with the same methods. */
import { HoldfastError, invalid, SilenceGuard, StoreUnavailableError } from "../../store/index.ts";
import { connectionsOf, isInTransaction, isPool, type QueryPort } from "./connections.ts";
import { inTransaction, sqlState } from "./errors.ts";
import type { Statement } from "./statements.ts";

/** The result of a query. */
export interface PostgresResult {
  readonly rows: readonly unknown[];
}

/** Runs one statement with values for `$1`, `$2` and so on, in a transaction of its own. All values are texts. */
export interface PostgresClient {
  query(text: string, values?: string[]): Promise<PostgresResult>;
}

/** A session of its own for `LISTEN`: a `Client` of `pg` that is connected. */
export interface PostgresListener {
  query(text: string): Promise<unknown>;
  on(event: "notification", listener: (message: PostgresNotification) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
  on(event: "end", listener: () => void): unknown;
  end(): unknown;
  /** Lets the process end although the connection is open. */
  unref?(): unknown;
}

/** A message to a session that listens. */
export interface PostgresNotification {
  readonly channel: string;
  readonly payload?: string | undefined;
}

/** Opens a session that listens. The store calls its `end`. */
export type OpenListener = () => Promise<PostgresListener>;

export type Send = (statement: Statement) => Promise<PostgresResult>;

export function checkClient(client: PostgresClient): PostgresClient {
  const { query, escapeId, getConnection } = Object(client) as Record<string, unknown>;
  if (typeof escapeId === "function" || typeof getConnection === "function") {
    throw invalid(
      "client must be a Pool or a Client of pg. This client is of mysql2. Pass it to mysqlStore.",
    );
  }
  if (typeof query === "function") return client;
  throw invalid(
    "client must be a Pool or a Client of pg, or an object with query(text, values), not " +
      `${client === null ? "null" : typeof client}.`,
  );
}

/** Sends statements over a client. A request that is not answered within `timeoutMs` is given up. */
export function senderOver(
  client: PostgresClient,
  timeoutMs: number,
  connections = isPool(client) ? connectionsOf(client) : undefined,
): Send {
  if (connections !== undefined) {
    return namedSender(client, (query) => connections.use(timeoutMs, query));
  }
  const checked: Over = async (query) => {
    const port = client as QueryPort;
    // An error of the server would undo the application's transaction.
    if (isInTransaction(port)) throw inTransaction();
    return query(port);
  };
  return namedSender(client, takesSeveral(client) ? checked : oneByOne(checked, timeoutMs));
}

/** Whether a second request can go out before the first is answered. Unknown clients are taken to see to that. */
function takesSeveral(client: PostgresClient): boolean {
  return isPool(client) || typeof (client as { connect?: unknown }).connect !== "function";
}

type Query = (port: QueryPort) => Promise<PostgresResult>;
type Over = (query: Query) => Promise<PostgresResult>;

/** One statement after the other, as a single `Client` of pg asks for. */
function oneByOne(over: Over, timeoutMs: number): Over {
  const guard = new SilenceGuard(
    timeoutMs,
    () =>
      new StoreUnavailableError(
        `The connection of the PostgreSQL client has not answered for ${timeoutMs} ms. Pass a Pool, which replaces connections, or create a store over another Client.`,
      ),
  );
  let last: Promise<unknown> = Promise.resolve();
  return (query) =>
    guard.watch(() => {
      const next = last.then(() => over(query));
      last = next.catch(() => {});
      return next;
    });
}

/**
 * A statement with a name is parsed and planned once for each session. Behind a pooler the next statement may run in another session,
 * which lacks the name or has it already. Nothing was done then, and from then on all statements go without names.
 */
function namedSender(client: PostgresClient, over: Over): Send {
  let usesNames = takesNames(client);
  return async (statement) => {
    const { name, text, values } = statement;
    const plainly = () => over(async (port) => checked(statement, await port.query(text, values)));
    if (name === undefined || values === undefined || !usesNames) return plainly();
    try {
      return await over(async (port) => checked(statement, await port.query({ name, text, values })));
    } catch (error) {
      if (!NAME_ERRORS.has(sqlState(error) ?? "")) throw error;
      usesNames = false;
    }
    return plainly();
  };
}

/** The session lacks the name, or has it already. */
const NAME_ERRORS: ReadonlySet<string> = new Set(["26000", "42P05"]);

function checked({ check }: Statement, result: PostgresResult): PostgresResult {
  const row = result.rows?.[0];
  if (row !== undefined) check?.(row);
  return result;
}

/** Whether the client is of `pg`. Others may know no query but a text and values. */
function takesNames(client: PostgresClient): boolean {
  const { escapeIdentifier } = client as { escapeIdentifier?: unknown };
  return isPool(client) || typeof escapeIdentifier === "function";
}

/** Refuses a client that was closed for good, or was never connected: such a client keeps requests back without an answer. */
export function checkUsable(client: PostgresClient): void {
  const { ended, ending, _ending, _connected, _connecting } = Object(client) as Record<string, unknown>;
  // A pool has the first two, a single client the third.
  if (ended === true || ending === true || _ending === true) {
    throw new HoldfastError(
      "STORE_FAILURE",
      "The PostgreSQL client was ended. Create a store over another client, and close the store before the client.",
    );
  }
  if (_connected === false && _connecting === false) {
    throw new HoldfastError(
      "STORE_FAILURE",
      "The PostgreSQL client is not connected. Call its connect() before the store is used, or pass a Pool.",
    );
  }
}
