/** The pool of pg as `PoolConnections` needs it, and the pooled connection that listens. */
import { type Clock, systemClock } from "../../platform/index.ts";
import { type ConnectionPool, invalid, PoolConnections } from "../../store/index.ts";
import type { OpenListener, PostgresClient, PostgresListener, PostgresResult } from "./client.ts";
import { inTransaction } from "./errors.ts";

/** A pool, a client, or a connection of a pool. */
export interface QueryPort {
  query(text: string, values?: string[]): Promise<PostgresResult>;
  query(statement: {
    readonly name: string;
    readonly text: string;
    readonly values: string[];
  }): Promise<PostgresResult>;
  /** "I" outside of transactions. Newer versions of pg know it. */
  getTransactionStatus?(): string | null;
}

/** A connection that is taken out of a pool of pg. */
export interface PooledConnection extends QueryPort, Omit<PostgresListener, "query"> {
  readonly connection?: { readonly stream?: { destroy(): unknown } };
  /** Whether the connection still has to log in. */
  readonly _connecting?: boolean;
  /** How often it went back to the pool. */
  readonly _poolUseCount?: number;
  release(destroy?: boolean): void;
}

/** A pool of `pg`. */
export interface PostgresPool extends QueryPort {
  readonly totalCount: number;
  readonly ending?: boolean;
  readonly options?: { readonly max?: number | null; readonly connectionTimeoutMillis?: number };
  readonly _clients?: readonly PooledConnection[];
  connect(
    callback: (error: Error | undefined, connection: PooledConnection | undefined) => void,
  ): Promise<PooledConnection | undefined> | undefined;
  on?(event: "remove", listener: () => void): unknown;
  removeListener?(event: "remove", listener: () => void): unknown;
}

export function isPool(client: PostgresClient): client is PostgresPool {
  const { totalCount, connect } = client as Partial<PostgresPool>;
  return typeof totalCount === "number" && typeof connect === "function";
}

export function connectionsOf(pool: PostgresPool): PoolConnections<PooledConnection> {
  const adapted: ConnectionPool<PooledConnection> = {
    product: "PostgreSQL",
    connect: () => connectionOf(pool),
    refusal: (connection) => (isInTransaction(connection) ? inTransaction() : undefined),
    identity: (connection) => connection,
    madeMs: ({ _poolUseCount: uses = 0 }) =>
      uses === 0 ? systemClock.monotonicMs() : Number.NEGATIVE_INFINITY,
    // A limit that the application has set counts instead.
    attempts: () =>
      pool.options?.connectionTimeoutMillis
        ? []
        : (pool._clients ?? []).filter(({ _connecting }) => _connecting),
    endAttempt: (attempt) => (attempt as PooledConnection).connection?.stream?.destroy(),
    release: (connection) => connection.release(),
    destroy,
  };
  return new PoolConnections(adapted);
}

/** Whether the application has left a transaction open in it. */
export function isInTransaction(port: QueryPort): boolean {
  return (port.getTransactionStatus?.() ?? "I") !== "I";
}

const withListener = new WeakSet<PooledConnection>();

/**
 * The pool removes its error listener when it calls back, and a promise resolves only afterwards. An error of the connection in between
 * would end the process, so the callback adds a listener.
 */
function connectionOf(pool: PostgresPool): Promise<PooledConnection> {
  return new Promise((resolve, reject) => {
    const arrive = (connection: PooledConnection) => {
      if (!withListener.has(connection)) connection.on("error", ignore);
      withListener.add(connection);
      resolve(connection);
    };
    const promised = pool.connect((error, connection) => {
      if (connection === undefined) reject(error);
      else arrive(connection);
    });
    // Pools that resemble the one of pg may know no callbacks.
    promised?.then((connection) => connection !== undefined && arrive(connection), reject);
  });
}

/** The pool makes another connection in its place. */
function destroy(connection: PooledConnection): void {
  connection.release(true);
  connection.connection?.stream?.destroy();
}

/** How often to check whether the pool was ended. Its event "remove" usually says so earlier. */
const ENDING_CHECK_MS = 250;

/** A connection of the pool for `LISTEN`. */
export function poolListener(
  pool: PostgresPool,
  connections: PoolConnections<PooledConnection>,
  clock: Clock,
  timeoutMs: number,
): OpenListener {
  if (pool.options?.max === 1) {
    throw invalid(
      "client must be a pool of at least 2 connections, because one of them listens. Raise its max, or pass listener: false.",
    );
  }
  return async () => {
    const connection = await connections.take(timeoutMs);
    let hasEnded = false;
    // Returned to the pool, the connection would go on listening.
    const end = () => {
      if (hasEnded) return;
      hasEnded = true;
      timer.cancel();
      pool.removeListener?.("remove", check);
      destroy(connection);
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
  };
}

function ignore(): void {}
