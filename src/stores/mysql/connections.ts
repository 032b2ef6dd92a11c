/** The pool of mysql2 as `PoolConnections` needs it. */
import { systemClock } from "../../platform/index.ts";
import { type ConnectionPool, PoolConnections } from "../../store/index.ts";
import type { MysqlPool, MysqlPoolConnection } from "./client.ts";
import { wrongClient } from "./errors.ts";

/** A connection of mysql2 behind a connection of `mysql2/promise`. */
interface Core {
  readonly stream?: { destroy?(): unknown };
  /** Whether it has logged in. */
  readonly authorized?: boolean;
}

/** Only a pool of `mysql2/promise` has these, not a pool of a cluster. */
interface PromisePool {
  readonly pool?: {
    readonly _allConnections?: { readonly length: number; get(index: number): Core | undefined };
  };
  on?(event: "connection", listener: (core: Core) => void): unknown;
}

const known = new WeakMap<MysqlPool, PoolConnections<MysqlPoolConnection>>();

/** All stores over a pool share one object, because it listens to the pool. */
export function connectionsOf(pool: MysqlPool): PoolConnections<MysqlPoolConnection> {
  const connections = known.get(pool) ?? new PoolConnections(adapted(pool));
  known.set(pool, connections);
  return connections;
}

function adapted(pool: MysqlPool): ConnectionPool<MysqlPoolConnection> {
  const { on, pool: core } = pool as PromisePool;
  const madeMs = new WeakMap<object, number>();
  on?.call(pool, "connection", (made) => madeMs.set(made, systemClock.monotonicMs()));
  const unknownMs = on === undefined ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY;
  return {
    product: "MySQL",
    async connect() {
      // A client with callbacks throws, or returns no promise.
      const connection: unknown = await pool.getConnection();
      if (typeof connection !== "object" || connection === null) throw wrongClient();
      return connection as MysqlPoolConnection;
    },
    identity: coreOf,
    madeMs: (connection) => madeMs.get(coreOf(connection)) ?? unknownMs,
    attempts() {
      const all = core?._allConnections;
      const found: Core[] = [];
      for (let index = 0; index < (all?.length ?? 0); index++) {
        const each = all?.get(index);
        if (each?.authorized === false) found.push(each);
      }
      return found;
    },
    endAttempt: (attempt) => (attempt as Core).stream?.destroy?.(),
    release: (connection) => connection.release(),
    destroy(connection) {
      connection.destroy();
      // `destroy` of mysql2 waits for the server to close the connection, and a silent server does not.
      (coreOf(connection) as Core).stream?.destroy?.();
    },
  };
}

function coreOf(connection: MysqlPoolConnection): object {
  return (connection as { connection?: object }).connection ?? connection;
}
