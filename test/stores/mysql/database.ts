/** A server for the tests of a file, and ways to it. */
import { type Clock, type Store, systemClock } from "holdfast";
import {
  type MysqlPool,
  type MysqlQuery,
  type MysqlStoreOptions,
  migrateMysql,
  mysqlStore,
} from "holdfast/mysql";
import { createConnection, createPool, type Pool, type PoolOptions } from "mysql2/promise";
import { afterAll, beforeAll, onTestFinished } from "vitest";
import { type MariadbServer, startMariadb } from "../../engines/mariadb.ts";
import type { Participant } from "../workers.ts";

export interface Database {
  readonly server: MariadbServer;
  /** A statement of an administrator, on a connection of its own. Resolves with the rows. */
  admin(sql: string): Promise<Record<string, unknown>[]>;
  /** A pool that ends with the test. */
  pool(options?: PoolOptions): Pool;
  /** A store that is closed with the test. */
  store(client: Pool | MysqlPool, options?: MysqlStoreOptions): Store;
  /** For workers, who end it themselves. */
  participant(url?: string, clock?: Clock): Participant;
}

/** Starts a server before the tests of this file, and makes the table. */
export function useDatabase(settings: readonly string[] = []): Database {
  let server: MariadbServer;
  beforeAll(async () => {
    server = await startMariadb(settings);
    const connection = await createConnection(server.url);
    await migrateMysql(connection);
    await connection.end();
  }, 120_000);
  afterAll(() => server?.stop());

  return {
    get server() {
      return server;
    },
    async admin(sql) {
      const connection = await createConnection(server.url);
      try {
        return (await connection.query(sql))[0] as Record<string, unknown>[];
      } finally {
        await connection.end();
      }
    },
    pool(options = {}) {
      const pool = createPool({ uri: server.url, connectionLimit: 4, ...options });
      onTestFinished(() => pool.end());
      return pool;
    },
    store(client, options = {}) {
      const store = mysqlStore(client, { durability: "ephemeral", ...options });
      onTestFinished(() => store.close());
      return store;
    },
    participant(url = server.url, clock = systemClock) {
      const pool = createPool({ uri: url, connectionLimit: 4, connectTimeout: 2_000 });
      const store = mysqlStore(pool, {
        durability: "ephemeral",
        maxPollMs: 100,
        requestTimeoutMs: 2_000,
        clock,
      });
      return { store, clock, end: () => pool.end() };
    },
  };
}

export interface CountedPool extends MysqlPool {
  /** What was sent, in order. */
  readonly sent: string[];
}

/** Passes statements on to a pool and keeps them, with something in place of what they say where that is asked for. */
export function counted(pool: Pool, put: (sql: string) => string = (sql) => sql): CountedPool {
  const sent: string[] = [];
  return {
    sent,
    async getConnection() {
      const connection = await pool.getConnection();
      return {
        query(query: MysqlQuery) {
          sent.push(query.sql);
          return connection.query({ ...query, sql: put(query.sql) }) as Promise<[unknown, unknown]>;
        },
        release: () => connection.release(),
        destroy: () => connection.destroy(),
      };
    },
  };
}
