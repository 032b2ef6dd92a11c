/** What the store needs of a PostgreSQL client: `pg` as it is, and anything that can be made to look like this much of it. */
import type { Clock } from "../../platform/index.ts";
import { HoldfastError, invalid, StoreUnavailableError } from "../../store/index.ts";
import { Connections, type PostgresPool, type QueryPort } from "./connections.ts";
import { sqlState } from "./errors.ts";
import { inTransaction } from "./hello.ts";
import { type Over, pipelineOf } from "./pipeline.ts";
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

/** Opens a session that listens. Its `end` is called when it is of no more use. */
export type OpenListener = () => Promise<PostgresListener>;

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

/** How requests reach the server over a client. */
export interface Access {
  readonly client: PostgresClient;
  readonly send: Send;
  /** After so long a request is given up. */
  readonly timeoutMs: number;
  /** Undefined if the client is not a pool. */
  readonly connections: Connections | undefined;
}

export function accessTo(
  client: PostgresClient,
  { clock, timeoutMs }: { readonly clock: Clock; readonly timeoutMs: number },
): Access {
  const connections = isPool(client) ? new Connections(client, clock, timeoutMs) : undefined;
  const named = namedSender(client, connections);
  const send = takesSeveral(client) ? named : oneByOne(named, clock, timeoutMs);
  return { client, send, timeoutMs, connections };
}

/** How often a pool is asked whether it was ended. Usually it says so itself, when it ends its other connections. */
const ENDING_CHECK_MS = 250;

/** What `listener: undefined` stands for: a connection of the pool where there is one. */
export function poolListener({ connections }: Access): OpenListener | undefined {
  if (connections === undefined) return undefined;
  const { pool } = connections;
  if (pool.options?.max === 1) {
    throw invalid(
      "client must be a pool of at least 2 connections, because one of them listens. Raise its max, or pass listener: false.",
    );
  }
  return () => listenerOf(connections);
}

async function listenerOf(connections: Connections): Promise<PostgresListener> {
  const { pool, clock } = connections;
  const connection = await connections.take(ignore);
  let hasEnded = false;
  // Back in the pool it would go on listening, so it is not given back.
  const end = () => {
    if (hasEnded) return;
    hasEnded = true;
    timer.cancel();
    pool.removeListener?.("remove", check);
    connections.discard(connection, ignore);
    connection.on("error", ignore);
  };
  // pool.end() waits for all connections, so it would never resolve.
  const check = () => {
    if (pool.ending !== true || hasEnded) return;
    process.emitWarning(
      "The pool of pg was ended before the Holdfast store that uses it. Call close() on the locks or the store first, and then end() on the pool.",
      { type: "HoldfastWarning", code: "POOL_ENDED" },
    );
    end();
  };
  const checkLater = () =>
    clock.setTimer(ENDING_CHECK_MS, () => {
      check();
      if (!hasEnded) timer = checkLater();
    });
  let timer = checkLater();
  pool.on?.("remove", check);
  return {
    query: (text) => connection.query(text),
    on: (event: string, listener: (...args: never[]) => void) => connection.on(event as "end", listener),
    end,
    unref: () => connection.unref?.(),
  };
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

export type Send = (statement: Statement) => Promise<PostgresResult>;

/**
 * One statement after the other where the client is a single connection: `pg` is about to refuse a query while another one is
 * under way, unless it was told to keep a pipeline. A pool, and everything unknown, is taken to see to that itself.
 *
 * A connection that was silent for `timeoutMs` may stay so for a quarter of an hour, and a single client makes no other. Requests fail at
 * once until it answers, or they would pile up behind the first.
 */
function oneByOne(send: Send, clock: Clock, timeoutMs: number): Send {
  let last: Promise<unknown> = Promise.resolve();
  let sentMs: number | undefined;
  return (statement) => {
    if (sentMs !== undefined && clock.monotonicMs() - sentMs >= timeoutMs)
      return Promise.reject(silentClient(timeoutMs));
    const next = last.then(() => {
      sentMs = clock.monotonicMs();
      return send(statement);
    });
    last = next.then(ignore, ignore).then(() => {
      sentMs = undefined;
    });
    return next;
  };
}

function silentClient(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `The connection of the PostgreSQL client has not answered for ${timeoutMs} ms. Pass a Pool, which replaces connections, or create a store over another Client.`,
  );
}

/**
 * A statement with a name is parsed and planned once for each connection. Behind a pooler a connection is another session each
 * time, which may lack the name, or have it already: then nothing was done, so the statement goes again without its name, and
 * so do all others from then on.
 */
function namedSender(client: PostgresClient, connections: Connections | undefined): Send {
  const checkOnly: Over = async (query) => {
    const port = client as QueryPort & { getTransactionStatus?(): string | null };
    // An error of the server would undo that transaction.
    if ((port.getTransactionStatus?.() ?? "I") !== "I") throw inTransaction();
    return query(port);
  };
  const over = connections === undefined ? checkOnly : pipelineOf(connections);
  let usesNames = takesNames(client);
  return async (statement) => {
    const { name, text, values } = statement;
    const plainly = () =>
      over(async (port) => checked(statement, await port.query(text, values)), name === undefined);
    if (name === undefined || values === undefined || !usesNames) return plainly();
    try {
      return await over(async (port) => checked(statement, await port.query({ name, text, values })), false);
    } catch (error) {
      if (!NAME_TROUBLE.has(sqlState(error) ?? "")) throw error;
      usesNames = false;
    }
    return plainly();
  };
}

function checked({ check }: Statement, result: PostgresResult): PostgresResult {
  const row = result.rows?.[0];
  if (row !== undefined) check?.(row);
  return result;
}

/** A name that the session does not have, and one that it has already. */
const NAME_TROUBLE: ReadonlySet<string> = new Set(["26000", "42P05"]);

/** Whether a request can go out while another one is under way. */
function takesSeveral(client: PostgresClient): boolean {
  const { connect, pipeline } = client as { connect?: unknown; pipeline?: unknown };
  return isPool(client) || typeof connect !== "function" || pipeline === true;
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
