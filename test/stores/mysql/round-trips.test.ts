/** How many requests locks cost, counted where they leave the process. */
import { createLocks } from "holdfast";
import { describe, expect, test } from "vitest";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { counted, useDatabase } from "./database.ts";

describe.skipIf(!canRunMariadb())("mysql: round trips", () => {
  const database = useDatabase();
  /** No sweep comes while requests are counted. */
  const late = { random: () => 0.99 };

  test("an uncontended lock is one request to take and one to give back", async () => {
    const pool = counted(database.pool());
    const locks = createLocks(database.store(pool, late));
    await (await locks.mutex("first").acquire()).release();
    // Who is there, what time is it, may old records be removed, and then the swaps.
    expect(pool.sent).toHaveLength(5);
    for (const key of ["first", "second"]) {
      pool.sent.length = 0;
      const lease = await locks.mutex(key).acquire();
      expect(pool.sent).toHaveLength(1);
      await lease.release();
      expect(pool.sent).toHaveLength(2);
    }
    await locks.close();
  });

  test("many locks at once are one request to take and one to give back", async () => {
    const pool = counted(database.pool());
    const locks = createLocks(database.store(pool, late));
    await (await locks.mutex("first").acquire()).release();
    pool.sent.length = 0;
    const keys = Array.from({ length: 100 }, (_, index) => `many ${index}`);
    const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()));
    expect(pool.sent).toHaveLength(1);
    await Promise.all(leases.map((lease) => lease.release()));
    expect(pool.sent).toHaveLength(2);
    await locks.close();
  });

  test("a conflict brings the record along, so the next attempt is the last", async () => {
    const pool = counted(database.pool());
    const locks = createLocks(database.store(pool, late));
    const others = createLocks(database.store(database.pool()));
    await (await locks.mutex("first").acquire()).release();
    const lease = await others.mutex("contended").acquire();
    pool.sent.length = 0;
    expect(await locks.mutex("contended").tryAcquire()).toBeNull();
    expect(pool.sent).toHaveLength(2);
    await lease.release();
    await Promise.all([locks.close(), others.close()]);
  });

  test("idle records are swept, and used ones are not", async () => {
    const store = database.store(database.pool(), { requestTimeoutMs: 100, keepIdleMs: 300 });
    const locks = createLocks(store);
    const kept = await locks.mutex("kept").acquire();
    await (await locks.mutex("swept").acquire()).release();
    const keys = async () =>
      (await database.admin("select cast(lock_key as char) as k from holdfast_locks")).map((row) => row["k"]);
    expect(await keys()).toEqual(expect.arrayContaining(["kept", "swept"]));
    await expect.poll(keys, { timeout: 5_000 }).not.toContain("swept");
    expect(await keys()).toContain("kept");
    expect(await kept.release()).toBe(true);
    await locks.close();
  });
});
