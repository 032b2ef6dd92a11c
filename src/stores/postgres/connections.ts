/**
 * Connections of a pool of pg, each for one session of requests.
 *
 * A network that forgets open connections, as a proxy, a firewall or a dead host does, tells neither end. The pool would keep such a
 * connection for as long as TCP does, which is a quarter of an hour, and a few of them are a whole pool. So:
 *
 * - A request that is given up ends its connection.
 * - After that, a connection that has not answered since is not used again: it went the same way.
 * - An attempt to connect ends when a request would be given up. By itself pg has no limit for it.
 * - A call that still waits in the queue of the pool serves the next request, so the queue does not grow during an outage.
 */
import type { Clock, Timer } from "../../platform/index.ts";
import { StoreUnavailableError } from "../../store/index.ts";
import type { PostgresListener, PostgresResult } from "./client.ts";
import { inTransaction } from "./hello.ts";

/** Whatever of pg takes statements: a pool, a client, or a connection of a pool. */
export interface QueryPort {
  query(text: string, values?: string[]): Promise<PostgresResult>;
  query(statement: {
    readonly name: string;
    readonly text: string;
    readonly values: string[];
  }): Promise<PostgresResult>;
}

/** A connection that is taken out of a pool of pg. */
export interface PooledConnection extends QueryPort, Omit<PostgresListener, "query"> {
  readonly pipeline?: boolean;
  readonly connection?: { readonly stream?: { destroy(): unknown } };
  /** Whether the connection still has to log in. */
  readonly _connecting?: boolean;
  /** How often it went back to the pool. */
  readonly _poolUseCount?: number;
  /** "I" outside of transactions. Newer versions of pg know it. */
  getTransactionStatus?(): string | null;
  removeListener(event: "error", listener: (error: Error) => void): unknown;
  release(destroy?: boolean): void;
}

/** What only a pool of `pg` has. */
export interface PostgresPool extends QueryPort {
  readonly totalCount: number;
  readonly ending?: boolean;
  readonly options?: {
    readonly max?: number | null;
    readonly pipeline?: boolean;
    readonly connectionTimeoutMillis?: number;
  };
  readonly waitingCount?: number;
  readonly _clients?: readonly PooledConnection[];
  connect(
    callback: (error: Error | undefined, connection: PooledConnection | undefined) => void,
  ): Promise<PooledConnection | undefined> | undefined;
  on?(event: "remove", listener: () => void): unknown;
  removeListener?(event: "remove", listener: () => void): unknown;
}

interface Waiter {
  readonly onError: () => void;
  readonly timer: Timer;
  resolve(connection: PooledConnection): void;
  reject(error: unknown): void;
}

/** An attempt to connect lasts between this part of the timeout and all of it, as it is looked at so often in between. */
const ATTEMPT_LASTS = 0.75;
const LOOKS_IN_A_TIMEOUT = 8;

export class Connections {
  readonly pool: PostgresPool;
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Called when a connection was found silent. */
  onSilence: () => void = () => {};
  readonly #waiters: Waiter[] = [];
  /** Calls of the pool that it has not answered, never fewer than there are waiters. */
  #asked = 0;
  #silentSinceMs: number | undefined;
  readonly #heardMs = new WeakMap<PooledConnection, number>();
  readonly #attemptsSinceMs = new WeakMap<PooledConnection, number>();
  #watch: Timer | undefined;

  constructor(pool: PostgresPool, clock: Clock, timeoutMs: number) {
    this.pool = pool;
    this.clock = clock;
    this.timeoutMs = timeoutMs;
  }

  /** Whether somebody waits for a connection. */
  get areWanted(): boolean {
    return (this.pool.waitingCount ?? 0) > 0;
  }

  /** Resolves to a connection outside of any transaction. Its errors are listened for from the moment when it is there. */
  take(onError: () => void): Promise<PooledConnection> {
    return new Promise((resolve, reject) => {
      const timer = this.clock.setTimer(this.timeoutMs, () => {
        this.#waiters.splice(this.#waiters.indexOf(waiter), 1);
        reject(noConnection(this.timeoutMs));
      });
      const waiter: Waiter = { onError, timer, resolve, reject };
      this.#waiters.push(waiter);
      if (this.#asked < this.#waiters.length) this.#ask();
    });
  }

  giveBack(connection: PooledConnection, onError: () => void): void {
    connection.removeListener("error", onError);
    connection.release();
  }

  /** Ends a connection. The pool makes another one in its place, without waiting for the network to confirm. */
  discard(connection: PooledConnection, onError: () => void): void {
    connection.removeListener("error", onError);
    // It says goodbye where it can.
    connection.release(true);
    connection.connection?.stream?.destroy();
  }

  /** Notes that an answer came. */
  heard(connection: PooledConnection): void {
    this.#heardMs.set(connection, this.clock.monotonicMs());
  }

  /** Notes that no answer came to what was sent at this time. */
  silent(sentMs: number): void {
    this.#silentSinceMs = Math.max(sentMs, this.#silentSinceMs ?? sentMs);
    this.onSilence();
  }

  #ask(): void {
    this.#asked++;
    // A pool of pg stops to listen for errors when it calls back, and promises are heard only after the present event. (1) A server that
    // stops ends a new session. (2) Both are read at once. (3) The error ends the process, as nobody listens. So the callback is used.
    const promised = this.pool.connect((error, connection) => {
      if (connection === undefined) this.#failed(error);
      else this.#arrived(connection);
    });
    // What is only like a pool of pg may know no callbacks.
    promised?.then(
      (connection) => connection !== undefined && this.#arrived(connection),
      (error) => this.#failed(error),
    );
    this.#watchAttempts();
  }

  #arrived(connection: PooledConnection): void {
    this.#asked--;
    const [waiter] = this.#waiters;
    connection.on("error", waiter?.onError ?? ignore);
    const onError = waiter?.onError ?? ignore;
    if (this.#isStale(connection)) {
      this.discard(connection, onError);
      if (this.#asked < this.#waiters.length) this.#ask();
      return;
    }
    const isInTransaction = (connection.getTransactionStatus?.() ?? "I") !== "I";
    if (isInTransaction) this.discard(connection, onError);
    else if (waiter === undefined) this.giveBack(connection, onError);
    if (waiter === undefined) return;
    this.#waiters.shift();
    waiter.timer.cancel();
    if (isInTransaction) waiter.reject(inTransaction());
    else waiter.resolve(connection);
  }

  /** Whether it was used before a connection was found silent, and not heard since. */
  #isStale(connection: PooledConnection): boolean {
    if (this.#silentSinceMs === undefined || (connection._poolUseCount ?? 0) === 0) return false;
    return (this.#heardMs.get(connection) ?? Number.NEGATIVE_INFINITY) <= this.#silentSinceMs;
  }

  #failed(error: unknown): void {
    this.#asked--;
    while (this.#waiters.length > this.#asked) {
      const waiter = this.#waiters.shift();
      waiter?.timer.cancel();
      waiter?.reject(error);
    }
  }

  /** Where the user has set a limit, that one counts. */
  #watchAttempts(): void {
    const { options, _clients: clients = [] } = this.pool;
    if (this.#watch !== undefined || this.#asked === 0 || options?.connectionTimeoutMillis) return;
    const nowMs = this.clock.monotonicMs();
    for (const client of clients) {
      if (client._connecting !== true) continue;
      const sinceMs = this.#attemptsSinceMs.get(client);
      if (sinceMs === undefined) this.#attemptsSinceMs.set(client, nowMs);
      else if (nowMs - sinceMs >= ATTEMPT_LASTS * this.timeoutMs) client.connection?.stream?.destroy();
    }
    this.#watch = this.clock.setTimer(this.timeoutMs / LOOKS_IN_A_TIMEOUT, () => {
      this.#watch = undefined;
      this.#watchAttempts();
    });
  }
}

function noConnection(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `The pool gave no connection to PostgreSQL within ${timeoutMs} ms: all are in use, or none can be opened. Raise its max, or find the code that keeps connections.`,
  );
}

function ignore(): void {}
