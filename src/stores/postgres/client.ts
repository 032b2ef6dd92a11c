/** What the store needs of a PostgreSQL client: `pg` as it is, and anything that can be made to look like this much of it. */
import { type Clock, HoldfastError, invalid, StoreUnavailableError } from "../../core/index.ts";
import { sqlState } from "./errors.ts";
import { type Over, type PooledConnection, pipelineOf, type QueryPort } from "./pipeline.ts";
import type { Statement } from "./statements.ts";

/** What a query resolves with. */
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

/** What `listen` brings. */
export interface PostgresNotification {
  readonly channel: string;
  readonly payload?: string | undefined;
}

/** What only a pool of `pg` has. */
interface PostgresPool extends QueryPort {
  readonly totalCount: number;
  readonly options?: { readonly max?: number | null; readonly pipeline?: boolean };
  readonly waitingCount?: number;
  connect(
    callback: (error: Error | undefined, connection: PoolConnection | undefined) => void,
  ): Promise<PoolConnection | undefined> | undefined;
}

type PoolConnection = PostgresListener & PooledConnection;

/** Opens a session that listens. Its `end` is called when it is of no more use. */
export type OpenListener = () => Promise<PostgresListener>;

export function checkClient(client: PostgresClient): PostgresClient {
  const { query, escapeId, getConnection } = Object(client) as Record<string, unknown>;
  if (typeof escapeId === "function" || typeof getConnection === "function") {
    throw invalid("client must be a Pool or a Client of pg. This one is of mysql2: pass it to mysqlStore.");
  }
  if (typeof query === "function") return client;
  throw invalid(
    "client must be a Pool or a Client of pg, or an object with query(text, values), not " +
      `${client === null ? "null" : typeof client}.`,
  );
}

/** What `listener: undefined` stands for: a connection of the pool where there is one. */
export function poolListener(client: PostgresClient): OpenListener | undefined {
  if (!isPool(client)) return undefined;
  if (client.options?.max === 1) {
    throw invalid(
      "client must be a pool of at least 2 connections, as one of them listens. Raise its max, or pass listener: false.",
    );
  }
  return async () => {
    const connection = await connectionOf(client, ignore);
    return {
      query: (text) => connection.query(text),
      on: (event: string, listener: (...args: never[]) => void) => connection.on(event as "end", listener),
      // Back in the pool it would go on listening, so it is not given back.
      end: () => connection.release(true),
      unref: () => connection.unref?.(),
    };
  };
}

/**
 * A connection of the pool, whose errors are listened for.
 *
 * The pool stops listening when it calls back, and promises it resolves are heard only when the present event is over. (1) A
 * server that is being stopped ends a session that has just begun. (2) This process reads both pieces of news at once. (3) The
 * connection emits an error that nobody listens for, which ends the process. So its callback is used.
 */
function connectionOf(pool: PostgresPool, onError: () => void): Promise<PoolConnection> {
  return new Promise((resolve, reject) => {
    const handOver = (connection: PoolConnection | undefined) => {
      if (connection === undefined) return;
      connection.on("error", onError);
      resolve(connection);
    };
    const promised = pool.connect((error, connection) => {
      if (connection === undefined) reject(error);
      else handOver(connection);
    });
    // What is only like a pool of pg may know no callbacks.
    promised?.then(handOver, reject);
  });
}

function ignore(): void {}

/**
 * Refuses a client that answers nothing, and will not by itself: one that the user has closed for good, and a single one that was not
 * told to connect, which would keep everything back without a word. One that has lost its connection is an outage.
 */
export function checkUsable(client: PostgresClient): void {
  const { ended, ending, _ending, _connected, _connecting } = Object(client) as Record<string, unknown>;
  // A pool says the former; a single client has but the latter.
  if (ended === true || ending === true || _ending === true) {
    throw new HoldfastError(
      "STORE_FAILURE",
      "The PostgreSQL client was ended. Make a store over another one, and at the end close the store before the client.",
    );
  }
  if (_connected === false && _connecting === false) {
    throw new HoldfastError(
      "STORE_FAILURE",
      "The PostgreSQL client is not connected. Call its connect() before the store is used, or pass a Pool.",
    );
  }
}

export type Send = (statement: Statement) => Promise<PostgresResult>;

/**
 * One statement after the other where the client is a single connection: `pg` is about to refuse a query while another one is
 * under way, unless it was told to keep a pipeline. A pool, and everything unknown, is taken to see to that itself.
 */
export function sender(client: PostgresClient, clock: Clock): Send {
  const send = namedSender(client, clock);
  if (takesSeveral(client)) return send;
  let last: Promise<unknown> = Promise.resolve();
  return (statement) => {
    const next = last.then(() => send(statement));
    last = next.catch(() => {});
    return next;
  };
}

/**
 * A statement with a name is parsed and planned once for each connection. Behind a pooler a connection is another session each
 * time, which may lack the name, or have it already: then nothing was done, so the statement goes again without its name, and
 * so do all others from then on.
 */
function namedSender(client: PostgresClient, clock: Clock): Send {
  const plainly: Send = async (statement) =>
    replyTo(statement, await client.query(statement.text, statement.values));
  if (!takesNames(client)) return plainly;
  const over: Over = isPipelined(client)
    ? pipelineOf(
        {
          connect: (onError) => connectionOf(client, onError),
          isWanted: () => (client.waitingCount ?? 0) > 0,
        },
        clock,
      )
    : (query) => query(client);
  let usesNames = true;
  return async (statement) => {
    const { name, text, values } = statement;
    // What takes long, as a list may, is not to hold up what is asked for all the time.
    if (name === undefined) return plainly(statement);
    try {
      if (usesNames) {
        return await over(async (connection) =>
          replyTo(statement, await connection.query({ name, text, values })),
        );
      }
    } catch (error) {
      if (!NAME_TROUBLE.has(sqlState(error) ?? "")) throw error;
      usesNames = false;
    }
    return over(async (connection) => replyTo(statement, await connection.query(text, values)));
  };
}

/**
 * Replies have no names: a client takes the next one for that to its oldest request. (1) Two requests are under way through
 * PgBouncer 1.18, and sessions are ended or requests cancelled. (2) Somebody gets the reply to another one, even of another
 * process. (3) A change is told as made that was not, and a claim is held that is nowhere. So each call says which it is, and its
 * reply repeats that.
 */
function replyTo({ call }: Statement, result: PostgresResult): PostgresResult {
  const row = result.rows?.[0] as { readonly call?: unknown } | undefined;
  if (call === undefined || row === undefined || row.call === call) return result;
  throw new StoreUnavailableError(
    "The PostgreSQL client handed out the reply to another request. What became of this one is unknown.",
  );
}

/** A name that the session does not have, and one that it has already. */
const NAME_TROUBLE: ReadonlySet<string> = new Set(["26000", "42P05"]);

/** Whether a request can go out while another one is under way. */
export function takesSeveral(client: PostgresClient): boolean {
  const { connect, pipeline } = client as { connect?: unknown; pipeline?: unknown };
  return isPool(client) || typeof connect !== "function" || pipeline === true;
}

function isPipelined(client: PostgresClient): client is PostgresPool {
  return isPool(client) && client.options?.pipeline === true;
}

/** Whether it is of `pg`, by what only those have. Something else may know no other query than a text and values. */
function takesNames(client: PostgresClient): client is PostgresClient & QueryPort {
  const { escapeIdentifier } = client as { escapeIdentifier?: unknown };
  return isPool(client) || typeof escapeIdentifier === "function";
}

function isPool(client: PostgresClient): client is PostgresPool {
  const { totalCount, connect } = client as Partial<PostgresPool>;
  return typeof totalCount === "number" && typeof connect === "function";
}
