/** What locks cost on the server: requests, connections and space. */
import { createLocks } from "holdfast";
import { postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";

describe.skipIf(!canRunPostgres())("postgres: costs", () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres();
  }, 60_000);

  afterAll(() => server?.stop());

  /** No sweep comes while requests are counted. */
  const late = { random: () => 0.99 };

  /** A client over a pool as it comes, whose requests are counted, with everything done that is done once. */
  async function open(table: string, max: number) {
    const pool = new Pool({ connectionString: server.url, max });
    let count = 0;
    // Each request takes a connection from the pool first.
    pool.on("acquire", () => count++);
    // Ten thousand answers take a while on a busy machine.
    const patience = { requestTimeoutMs: 60_000 };
    const options = { table, autoMigrate: true, requestTimeoutMs: 60_000, ...late };
    const locks = createLocks(postgresStore(pool, options), patience);
    onTestFinished(async () => {
      await locks.close();
      await pool.end();
    });
    await locks.mutex("first").run(() => {});
    const tripsOf = async <T>(work: () => Promise<T>) => {
      const before = count;
      const value = await work();
      return { trips: count - before, value };
    };
    return { pool, locks, tripsOf };
  }

  test("an acquire is one round trip, and so is a release, of a new key and of a known one", async () => {
    const { locks, tripsOf } = await open("trips", 5);
    for (let round = 0; round < 3; round++) {
      const acquired = await tripsOf(() => locks.mutex("key").acquire());
      const released = await tripsOf(() => acquired.value.release());
      expect([acquired.trips, released.trips]).toEqual([1, 1]);
    }
  });

  test("a hundred keys are one round trip together", async () => {
    const { locks, tripsOf } = await open("many", 5);
    for (let round = 0; round < 2; round++) {
      const keys = Array.from({ length: 100 }, (_, index) => `${index}`);
      const acquired = await tripsOf(() => Promise.all(keys.map((key) => locks.mutex(key).acquire())));
      const released = await tripsOf(() => Promise.all(acquired.value.map((lease) => lease.release())));
      expect([acquired.trips, released.trips]).toEqual([1, 1]);
    }
  });

  test("ten thousand locks are held on a pool of five, and renewed", async () => {
    const { pool, locks, tripsOf } = await open("crowd", 5);
    const listeners = "select count(*)::int as n from pg_stat_activity where query ~ '^listen'";
    // One of the five listens.
    expect((await pool.query(listeners)).rows).toEqual([{ n: 1 }]);
    const keys = Array.from({ length: 10_000 }, (_, index) => `key-${index}`);
    const { trips, value: leases } = await tripsOf(() =>
      Promise.all(keys.map((key) => locks.mutex(key, { ttlMs: 60_000 }).acquire())),
    );
    expect(trips).toBeLessThan(100);
    expect(pool.totalCount).toBeLessThanOrEqual(5);
    const extended = await tripsOf(() => Promise.all(leases.map((lease) => lease.extend(90_000))));
    expect(extended.trips).toBeLessThan(100);
    expect(leases.filter((lease) => !lease.held)).toEqual([]);
    expect(new Set(leases.map((lease) => lease.key)).size).toBe(10_000);
    const { rows } = await pool.query("select count(*)::int as n from crowd where not idle");
    expect(rows).toEqual([{ n: 10_000 }]);
    await Promise.all(leases.map((lease) => lease.release()));
  }, 60_000);

  test("changes leave no index entries behind, and their old copies are cleared away on the way", async () => {
    const { pool, locks } = await open("space", 5);
    const sizes = async () => {
      const sql = "select pg_relation_size('space') as heap, pg_indexes_size('space') as indexes";
      return (await pool.query<{ heap: string; indexes: string }>(sql)).rows[0]!;
    };
    const cycle = () =>
      Promise.all(Array.from({ length: 20 }, (_, index) => locks.mutex(`${index}`).run(() => {})));
    for (let round = 0; round < 20; round++) await cycle();
    const before = await sizes();
    for (let round = 0; round < 200; round++) await cycle();
    const after = await sizes();
    // Eight thousand copies of some 250 bytes would be 2 MB.
    expect(Number(after.heap)).toBeLessThan(500_000);
    expect(after.indexes).toBe(before.indexes);
  });
});
