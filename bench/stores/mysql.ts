/** MySQL or MariaDB: the store against GET_LOCK, which is what people take without a library. */
import type { Store } from "holdfast";
import { type MysqlPool, type MysqlQuery, migrateMysql, mysqlStore } from "holdfast/mysql";
import { createPool, type Pool, type RowDataPacket } from "mysql2/promise";
import { startMariadb } from "../../test/engines/mariadb.ts";
import type { OpenContender, Peer } from "./contender.ts";

/** What a pool of an application has, and what one of GET_LOCK needs: each lock keeps a connection to itself. */
const STORE_CONNECTIONS = 10;
const PEER_CONNECTIONS = 100;

export async function openMysql(): Promise<OpenContender> {
  // Every commit waits for the disk, as the store promises. GET_LOCK writes nothing.
  const server = await startMariadb(["--innodb-flush-log-at-trx-commit=1", "--max-connections=300"]);
  const connect = (connectionLimit: number) =>
    createPool({ uri: server.url, connectionLimit, maxIdle: connectionLimit });
  const peerPool = connect(PEER_CONNECTIONS);
  const pools = [peerPool];
  const stores: Store[] = [];
  const counter = { roundTrips: 0 };
  await migrateMysql(peerPool);
  return {
    async newStore() {
      const pool = connect(STORE_CONNECTIONS);
      pools.push(pool);
      const store = mysqlStore(counting(pool, counter));
      stores.push(store);
      return store;
    },
    roundTrips: () => counter.roundTrips,
    url: server.url,
    peers: { GET_LOCK: getLock(peerPool) },
    async close() {
      await Promise.all(stores.map((store) => store.close()));
      await Promise.all(pools.map((pool) => pool.end()));
      await server.stop();
    },
  };
}

function counting(pool: Pool, counter: { roundTrips: number }): MysqlPool {
  return {
    async getConnection() {
      const connection = await pool.getConnection();
      return {
        query(query: MysqlQuery) {
          counter.roundTrips++;
          return connection.query(query) as Promise<[unknown, unknown]>;
        },
        release: () => connection.release(),
        destroy: () => connection.destroy(),
      };
    },
  };
}

/** Waits inside the server, for up to an hour. The connection is the lock, so it is taken for as long as the lock is. */
function getLock(pool: Pool): Peer {
  return async (key) => {
    const session = await pool.getConnection();
    const [rows] = await session.query<RowDataPacket[]>("select get_lock(?, 3600) as got", [key]);
    if (rows[0]?.["got"] !== 1) {
      session.release();
      throw new Error(`${key} was not granted.`);
    }
    return async () => {
      await session.query("select release_lock(?)", [key]);
      session.release();
    };
  };
}
