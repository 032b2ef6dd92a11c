/** A server that keeps a binary log, as one with replicas does: what it must wait for, and what it takes to migrate there. */
import { createLocks } from "holdfast";
import { type MysqlStoreOptions, migrateMysql, mysqlStore } from "holdfast/mysql";
import { createConnection } from "mysql2/promise";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { failure } from "../failure.ts";
import { useDatabase } from "./database.ts";

describe.skipIf(!canRunMariadb())("mysql: a server with a binary log", () => {
  const database = useDatabase([
    "--log-bin=binlog",
    "--server-id=1",
    "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
  ]);

  beforeAll(async () => {
    expect(await database.admin("select @@log_bin as log")).toEqual([{ log: 1 }]);
  });

  /** Takes a lock and gives it back, with a store that has to survive crashes, on sessions of its own. */
  async function use(key: string, options: MysqlStoreOptions = {}): Promise<void> {
    const locks = createLocks(mysqlStore(database.pool(), options), { requestTimeoutMs: 500 });
    onTestFinished(() => locks.close());
    await (await locks.mutex(key).acquire()).release();
  }

  /** For sessions that begin after this, until the test is over. */
  async function set(name: string, value: number | string): Promise<void> {
    const [before] = await database.admin(`select @@global.${name} as value`);
    await database.admin(`set global ${name} = ${value}`);
    onTestFinished(async () => {
      await database.admin(`set global ${name} = ${before?.["value"]}`);
    });
  }

  test.each([0, 2])("is not durable where sync_binlog is %i", async (every) => {
    await set("sync_binlog", every);
    expect(await failure(use("unsynced"))).toMatchObject({
      code: "DURABILITY_UNAVAILABLE",
      message: expect.stringContaining("sync_binlog = 1"),
    });
    await use("unsynced", { durability: "ephemeral" });
  });

  test.each(["row", "mixed"])("is durable where sync_binlog is 1, and %s is its format", async (format) => {
    await set("binlog_format", format);
    await use(format);
  });

  test("refuses the format statement with advice, and nothing is written", async () => {
    await set("binlog_format", "statement");
    expect(await failure(use("statement"))).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("binlog_format"),
    });
    expect(await database.admin("select 1 from holdfast_locks where lock_key = 'statement'")).toEqual([]);
  });

  /** Migrates as a new user with these rights on the database, and no others. */
  async function migrateWith(rights: string, user: string, table: string): Promise<void> {
    await database.admin(`create user ${user}@'127.0.0.1'`);
    await database.admin(`grant ${rights} on holdfast.* to ${user}@'127.0.0.1'`);
    const connection = await createConnection(database.server.url.replace("holdfast@", `${user}@`));
    onTestFinished(() => connection.end());
    for (const _ of ["first", "again"]) await migrateMysql(connection, { table });
  }

  test("is migrated by a user with the documented rights, repeatedly, and by another", async () => {
    await migrateWith("create, create routine", "migrator", "granted");
    await migrateWith("create, create routine", "successor", "granted");
    await use("migrated", { table: "granted" });
  });

  test.each([
    ["table", "create routine"],
    ["routine", "create"],
  ])("is not migrated by one who may make no %s, who is told of the rights", async (lacks, rights) => {
    expect(await failure(migrateWith(rights, `no_${lacks}`, `denied_${lacks}`))).toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining("docs/stores/mysql.md"),
    });
  });
});
