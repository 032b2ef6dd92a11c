/**
 * Connections of a pool of mysql2, one for each statement.
 *
 * A network that forgets open connections, as a proxy, a firewall or a dead host does, tells neither end. The pool would keep such
 * a connection for as long as TCP does, which is a quarter of an hour, and a few of them are a whole pool. So:
 *
 * - A request that is given up destroys its connection, and whatever has been connecting for as long as it waited.
 * - After that, an older connection that has not answered since is not used again: it went the same way.
 * - A call that still waits in the queue of the pool serves the next request, so the queue does not grow during an outage.
 */

import { systemClock } from "../../platform/index.ts";
import { StoreUnavailableError } from "../../store/index.ts";

export interface PoolConnection {
  release(): void;
  destroy(): void;
}

interface Pool<C> {
  getConnection(): Promise<C>;
}

/** What mysql2 has behind a connection of `mysql2/promise`. */
interface Core {
  readonly stream?: { destroy?(): unknown };
  /** Whether it has logged in. */
  readonly authorized?: boolean;
}

/** What only a pool of `mysql2/promise` has. One of a cluster has none of this. */
interface PromisePool {
  readonly pool?: {
    readonly _allConnections?: { readonly length: number; get(index: number): Core | undefined };
  };
  on?(event: "connection", listener: (core: Core) => void): unknown;
}

interface Waiter<C> {
  resolve(connection: C): void;
  reject(error: unknown): void;
}

export class Connections<C extends PoolConnection> {
  readonly #pool: Pool<C>;
  #waiters: Waiter<C>[] = [];
  /** Calls of the pool that it has not answered, never fewer than there are waiters. */
  #asked = 0;
  #silentSinceMs: number | undefined;
  /** When a connection was made, or heard. */
  readonly #heardMs = new WeakMap<object, number>();
  readonly #knowsNewOnes: boolean;

  constructor(pool: Pool<C>) {
    this.#pool = pool;
    const { on } = pool as PromisePool;
    this.#knowsNewOnes = typeof on === "function";
    on?.call(pool, "connection", (core) => this.#heardMs.set(core, systemClock.monotonicMs()));
  }

  /** Lends a connection to one request. One on which it fails is destroyed: a killed statement leaves its transaction open. */
  async use<R>(timeoutMs: number, request: (connection: C) => Promise<R>): Promise<R> {
    const connecting = this.#connecting();
    let connection: C | undefined;
    let sentMs = Number.POSITIVE_INFINITY;
    const waiter: Waiter<C> = { resolve: () => {}, reject: () => {} };
    let timer: NodeJS.Timeout | undefined;
    const tooLate = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        this.#waiters = this.#waiters.filter((each) => each !== waiter);
        if (connection === undefined)
          for (const core of connecting) if (!core.authorized) core.stream?.destroy?.();
        if (systemClock.monotonicMs() - sentMs >= timeoutMs / 2) this.#silentSinceMs = sentMs;
        reject(silence(timeoutMs));
      }, timeoutMs);
    });
    const answer = async () => {
      const taken = this.#take(waiter);
      // The pool may have begun to make one for this request.
      connecting.push(...this.#connecting());
      connection = await taken;
      sentMs = systemClock.monotonicMs();
      const reply = await request(connection);
      this.#heardMs.set(coreOf(connection), systemClock.monotonicMs());
      return reply;
    };
    try {
      const reply = await Promise.race([answer(), tooLate]);
      connection?.release();
      return reply;
    } catch (error) {
      if (connection !== undefined) destroy(connection);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  #take(waiter: Waiter<C>): Promise<C> {
    return new Promise((resolve, reject) => {
      Object.assign(waiter, { resolve, reject });
      this.#waiters.push(waiter);
      if (this.#asked < this.#waiters.length) this.#ask();
    });
  }

  #ask(): void {
    this.#asked++;
    // A client with callbacks throws, or returns something else.
    (async () => this.#pool.getConnection())().then(
      (connection) => {
        this.#asked--;
        if (this.#isStale(connection)) {
          destroy(connection);
          if (this.#asked < this.#waiters.length) this.#ask();
          return;
        }
        const waiter = this.#waiters.shift();
        if (waiter === undefined) connection.release();
        else waiter.resolve(connection);
      },
      (error: unknown) => {
        this.#asked--;
        while (this.#waiters.length > this.#asked) this.#waiters.shift()?.reject(error);
      },
    );
  }

  /** Whether it was made before a connection was found silent, and not heard since. */
  #isStale(connection: C): boolean {
    if (this.#silentSinceMs === undefined) return false;
    const heardMs = this.#heardMs.get(coreOf(connection));
    if (heardMs === undefined) return this.#knowsNewOnes;
    return heardMs <= this.#silentSinceMs;
  }

  #connecting(): Core[] {
    const all = (this.#pool as PromisePool).pool?._allConnections;
    const found: Core[] = [];
    for (let index = 0; index < (all?.length ?? 0); index++) {
      const core = all?.get(index);
      if (core?.authorized === false) found.push(core);
    }
    return found;
  }
}

/** mysql2 itself only says goodbye and waits for the other end, which a forgotten connection has none of. */
function destroy(connection: PoolConnection): void {
  connection.destroy();
  (coreOf(connection) as Core).stream?.destroy?.();
}

function coreOf(connection: PoolConnection): object {
  return (connection as { connection?: object }).connection ?? connection;
}

function silence(timeoutMs: number): StoreUnavailableError {
  return new StoreUnavailableError(
    `MySQL is unavailable: it did not answer within ${timeoutMs} ms. The result of the request is unknown.`,
  );
}
