/** PostgreSQL: the store against advisory locks of a session, which is what people take without a library. */
import type { Store } from "holdfast";
import { migratePostgres, type PostgresStoreOptions, postgresStore } from "holdfast/postgres";
import { Client, Pool, type PoolClient } from "pg";
import { startPostgres } from "../../test/engines/postgres.ts";
import type { OpenContender, Peer } from "./contender.ts";
import { openBareUpdates } from "./postgres-bare.ts";

/** What a pool of an application has, and what one of advisory locks needs: each caller keeps a connection to itself. */
const STORE_CONNECTIONS = 10;
const PEER_CONNECTIONS = 100;
/** By what the server tells the connections of a store from others. */
const STORE_NAME = "holdfast";
const POOLED_NAME = "holdfast-pooled";

export async function openPostgres(): Promise<OpenContender> {
  const server = await startPostgres({ fsync: true, settings: { max_connections: "200" } });
  const connect = (max: number, name: string) =>
    new Pool({ connectionString: server.url, max, application_name: name });
  const peerPool = connect(PEER_CONNECTIONS, "peer");
  const pools = [peerPool];
  const stores: Store[] = [];
  let roundTrips = 0;
  await migratePostgres(peerPool);
  const bareUpdates = await openBareUpdates(server.url);
  const storeOver = (pool: Pool, options: PostgresStoreOptions = {}) => {
    pools.push(pool);
    const store = postgresStore(pool, options);
    stores.push(store);
    return store;
  };
  return {
    async newStore() {
      const pool = connect(STORE_CONNECTIONS, STORE_NAME);
      // Whatever a lone caller sends takes a connection from the pool first. What listens is not counted.
      pool.on("acquire", () => roundTrips++);
      return storeOver(pool, { listener: () => listenerOf(server.url, STORE_NAME) });
    },
    roundTrips: () => roundTrips,
    url: server.url,
    async pooled(size) {
      const store = storeOver(connect(size, POOLED_NAME));
      const count = "select count(*) from pg_stat_activity where application_name = $1";
      const connections = async () => {
        const { rows } = await peerPool.query<{ count: string }>(count, [POOLED_NAME]);
        return Number(rows[0]?.count);
      };
      return { store, connections };
    },
    peers: {
      "advisory locks": (key) => advisoryLock(peerPool, key),
      "advisory tries": (key) => advisoryTry(peerPool, key),
    },
    bare: bareUpdates.cycleFor,
    async close() {
      await bareUpdates.close();
      await Promise.all(stores.map((store) => store.close()));
      await Promise.all(pools.map((pool) => pool.end()));
      await server.stop();
    },
  };
}

async function listenerOf(url: string, name: string): Promise<Client> {
  const client = new Client({ connectionString: url, application_name: name });
  await client.connect();
  return client;
}

/** Waits inside the server. The connection is the lock, so it is taken for as long as the lock is. */
const advisoryLock: (pool: Pool, key: string) => ReturnType<Peer> = async (pool, key) => {
  const session = await pool.connect();
  await session.query("select pg_advisory_lock(hashtextextended($1, 0))", [key]);
  return () => unlock(session, key);
};

/** Does not wait: a key that is taken is an error. */
const advisoryTry: (pool: Pool, key: string) => ReturnType<Peer> = async (pool, key) => {
  const session = await pool.connect();
  const sql = "select pg_try_advisory_lock(hashtextextended($1, 0)) as locked";
  const { rows } = await session.query<{ locked: boolean }>(sql, [key]);
  if (rows[0]?.locked === true) return () => unlock(session, key);
  session.release();
  throw new Error(`${key} is taken.`);
};

async function unlock(session: PoolClient, key: string): Promise<void> {
  await session.query("select pg_advisory_unlock(hashtextextended($1, 0))", [key]);
  session.release();
}
