/** How the function finds its rows: by their keys, whatever the server thinks of the table when it makes its plan. */
import { migratePostgres } from "holdfast/postgres";
import { Client, Pool } from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { tableNames } from "../../../src/stores/postgres/table.ts";
import { until } from "../../engines/engine.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { anyTime, changeOf, newDriver } from "./new-driver.ts";

describe.skipIf(!canRunPostgres())("postgres: plans", () => {
  let server: PostgresServer;
  let admin: Client;

  beforeAll(async () => {
    server = await startPostgres({ settings: { autovacuum: "off" } });
    admin = new Client({ connectionString: server.url });
    await admin.connect();
    // So that nothing is counted but what the store does.
    await admin.query("set enable_indexscan = off; set enable_bitmapscan = off");
  }, 60_000);

  afterAll(async () => {
    await admin?.end();
    await server?.stop();
  });

  const version = "00000000-0000-4000-8000-000000000001";
  const keyOf = (row: number) => `k${String(row).padStart(6, "0")}`;

  /** As it may be when the server looks at it: each row with a version of its own. Afterwards some have the same. */
  async function fill(table: string, rows: number, alike: number): Promise<void> {
    await migratePostgres(admin, { table });
    await admin.query(
      `insert into ${table} select 'k' || lpad(i::text, 6, '0'), md5(i::text)::uuid, 'old', false, 8640000000000000
       from generate_series(1, ${rows}) as i`,
    );
    await admin.query(`analyze ${table}`);
    await admin.query(`update ${table} set version = $1 where key <= $2`, [version, keyOf(alike)]);
  }

  async function looks(table: string): Promise<number> {
    const select = "select idx_scan::int as looks from pg_stat_user_tables where relname = $1";
    return (await admin.query(select, [table])).rows[0].looks;
  }

  describe.each([2, 3, 10, 30, 50, 100, 200, 1_000])("in a table of %s rows", (rows) => {
    test.each([
      ["alike", () => 8_640_000_000_000_000],
      ["different", (row: number) => 8_640_000_000_000_000 - row],
    ])("changes that are %s are found by their keys", async (how, keepUntilMs) => {
      const table = `${how}_${rows}`;
      const alike = Math.min(rows, 50);
      await fill(table, rows, alike);
      const before = await looks(table);
      const pool = new Pool({ connectionString: server.url, max: 1 });
      const driver = await newDriver(pool, { table, listens: false });
      const changes = Array.from({ length: alike }, (_, row) => ({
        ...changeOf(keyOf(row + 1), version, "new"),
        keepUntilMs: keepUntilMs(row),
      }));
      const { results } = await driver.swap(anyTime(changes));
      expect(results.every(({ state }) => state === "swapped")).toBe(true);
      await driver.close?.();
      // What a session has counted is told at its end, at the latest.
      await pool.end();
      await until("the looks are counted", async () => (await looks(table)) > before);
      // Some servers look once or twice more to make a plan.
      expect((await looks(table)) - before).toBeGreaterThanOrEqual(alike);
    });
  });

  test("nothing is remembered of rows that are looked at only once, where the server could", async () => {
    await migratePostgres(admin, { table: "remembered" });
    const select =
      "select proconfig, current_setting('server_version_num')::int as version from pg_proc where oid = $1::regproc";
    const { rows } = await admin.query(select, [tableNames("remembered").change]);
    const isOff = rows[0].proconfig.includes("enable_memoize=off");
    expect(isOff).toBe(rows[0].version >= 140_000);
  });
});
