/** Mistakes are told when a store is made or first used, and nothing is half done. */
import { createLocks, type Store } from "holdfast";
import { type MysqlClient, type MysqlStoreOptions, migrateMysql, mysqlStore } from "holdfast/mysql";
import { createPool as createCallbackPool } from "mysql2";
import { createPool } from "mysql2/promise";
import { describe, expect, onTestFinished, test } from "vitest";
import { checkVersion } from "../../../src/stores/mysql/first-use.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { useDatabase } from "./database.ts";

/** Asks a store for something. */
async function use(store: Store, key = "k"): Promise<void> {
  const locks = createLocks(store, { requestTimeoutMs: 500 });
  onTestFinished(() => locks.close());
  await (await locks.mutex(key).tryAcquire())?.release();
}

describe("mysql: options", () => {
  const pool = createPool({ host: "127.0.0.1" });

  test.each<[string, Record<string, unknown>, string]>([
    ["an unknown name", { tabel: "locks" }, "tabel is not an option"],
    ["no table", { table: "" }, "table must be"],
    ["a table of three parts", { table: "a.b.c" }, "table must be"],
    ["a table with a quotation mark", { table: "a`b" }, "table must be"],
    ["a table with too long a name", { table: "a".repeat(51) }, "table must be"],
    ["a table that is no text", { table: 7 }, "table must be"],
    ["no word for autoMigrate", { autoMigrate: "yes" }, "autoMigrate must be true or false"],
    ["a durability that it has not", { durability: "quorum" }, "durability must be"],
    ["small records", { maxRecordBytes: 100 }, "maxRecordBytes must be"],
    ["waiters below none", { maxWaiters: -1 }, "maxWaiters must be"],
    ["no time for a request", { flightMs: 0 }, "flightMs must be"],
  ])("%s is refused", (_, options, message) => {
    expect(() => mysqlStore(pool, options as MysqlStoreOptions)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining(message) }),
    );
  });

  test.each<[string, unknown]>([
    ["nothing", undefined],
    ["null", null],
    ["an address", "mysql://localhost"],
    ["an object that can do nothing", {}],
    ["a pool with callbacks", createCallbackPool({ host: "127.0.0.1" })],
  ])("%s is no client", (_, client) => {
    expect(() => mysqlStore(client as MysqlClient)).toThrow(
      expect.objectContaining({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("mysql2/promise"),
      }),
    );
  });

  test.each<[string, unknown]>([
    ["takes callbacks", { query: () => undefined }],
    ["answers with rows alone", { query: async () => [{ version: "8.0.36" }] }],
    ["answers with nothing", { query: async () => undefined }],
  ])("a client that %s is told apart at first use", async (_, client) => {
    await expect(use(mysqlStore(client as MysqlClient))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("mysql2/promise"),
    });
  });

  test.each([
    "8.0.4",
    "8.0.36",
    "8.4.2",
    "9.7.4-2",
    "10.6.0-MariaDB",
    "10.11.19-MariaDB-0+deb12u1",
    "11.4.2-MariaDB",
  ])("%s is new enough", (version) => expect(() => checkVersion(version)).not.toThrow());

  test.each(["5.7.44-log", "8.0.3", "10.5.28-MariaDB", "5.5.68-MariaDB", "something else"])(
    "%s is too old",
    (version) =>
      expect(() => checkVersion(version)).toThrow(expect.objectContaining({ code: "UNSUPPORTED" })),
  );
});

describe.skipIf(!canRunMariadb())("mysql: first use", () => {
  const database = useDatabase();
  const durability = "ephemeral";

  async function userWith(name: string, ...grants: readonly string[]) {
    await database.admin(`create user ${name}@'127.0.0.1'`);
    for (const grant of grants) await database.admin(`grant ${grant} to ${name}@'127.0.0.1'`);
    return database.pool({ uri: database.server.url.replace("holdfast@", `${name}@`) });
  }

  test("a missing table is told, and what to do", async () => {
    const store = mysqlStore(database.pool(), { durability, table: "missing" });
    await expect(use(store)).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("Run migrateMysql"),
    });
    expect(await database.admin("show tables like 'missing'")).toEqual([]);
  });

  test("a missing procedure is told, and made by the migration, which may be repeated and be run by several", async () => {
    const pool = database.pool();
    await migrateMysql(pool, { table: "half" });
    await database.admin("drop procedure half_swap_v1");
    const store = mysqlStore(pool, { durability, table: "half" });
    await expect(use(store)).rejects.toMatchObject({ code: "STORE_FAILURE" });
    await Promise.all([1, 2, 3].map(() => migrateMysql(database.pool(), { table: "half" })));
    await use(store);
  });

  test("autoMigrate makes what is missing, for several stores at once, in the database that is named", async () => {
    await database.admin("create database elsewhere");
    const options = { durability, table: "elsewhere.my-locks", autoMigrate: true } as const;
    await Promise.all([1, 2, 3].map(() => use(mysqlStore(database.pool(), options))));
    expect(await database.admin("select count(*) as n from elsewhere.`my-locks`")).toEqual([{ n: 1 }]);
  });

  test("a user with the rights that the documentation lists is enough, and cannot migrate", async () => {
    const pool = await userWith(
      "worker",
      "select, insert, update, delete on holdfast.holdfast_locks",
      "execute on procedure holdfast.holdfast_locks_swap_v1",
      "execute on procedure holdfast.holdfast_locks_sweep_v1",
    );
    await use(mysqlStore(pool, { durability }));
    const other = mysqlStore(pool, { durability, table: "forbidden", autoMigrate: true });
    await expect(use(other)).rejects.toMatchObject({ code: "UNAUTHORIZED" });
  });

  test("missing rights are told as such, and nothing is written", async () => {
    const pool = await userWith(
      "reader",
      "select on holdfast.holdfast_locks",
      "execute on procedure holdfast.holdfast_locks_swap_v1",
      "execute on procedure holdfast.holdfast_locks_sweep_v1",
    );
    await expect(use(mysqlStore(pool, { durability }), "unwritten")).rejects.toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining("rights"),
    });
    expect(await database.admin("select 1 from holdfast_locks where lock_key = 'unwritten'")).toEqual([]);
    const stranger = database.pool({ uri: database.server.url.replace("holdfast@", "stranger@") });
    await expect(use(mysqlStore(stranger, { durability }))).rejects.toMatchObject({ code: "UNAUTHORIZED" });
  });

  test("a connection without a database is told to name one", async () => {
    const pool = database.pool({ uri: database.server.url.replace(/\/holdfast$/, "") });
    const message = expect.stringMatching(/missing|no database/);
    await expect(use(mysqlStore(pool, { durability }))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message,
    });
    await use(mysqlStore(pool, { durability, table: "holdfast.holdfast_locks" }));
  });

  test("a table of an engine without transactions is refused", async () => {
    await migrateMysql(database.pool(), { table: "plain" });
    await database.admin("alter table plain engine = MyISAM");
    await expect(use(mysqlStore(database.pool(), { durability, table: "plain" }))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("engine = InnoDB"),
    });
  });

  test("a server that may lose commits is not durable, unless nobody asks for that", async () => {
    await expect(use(mysqlStore(database.pool()))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("innodb_flush_log_at_trx_commit"),
    });
    await database.admin("set global innodb_flush_log_at_trx_commit = 1");
    await use(mysqlStore(database.pool()));
    await database.admin("set global innodb_flush_log_at_trx_commit = 2");
  });

  test("a server that takes less than a record is told, and smaller records go", async () => {
    await database.admin("set global max_allowed_packet = 2097152");
    try {
      const pool = database.pool();
      await expect(use(mysqlStore(pool, { durability }))).rejects.toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining("max_allowed_packet"),
      });
      await use(mysqlStore(pool, { durability, maxRecordBytes: 16_384 }));
    } finally {
      await database.admin("set global max_allowed_packet = 16777216");
    }
  });

  test.each([
    ["no record at all", "no record"],
    ["of a later format", '{"v":99,"fence":"1","held":[],"waiting":[]}'],
  ])("a record that is %s fails its key alone, and stays as it is", async (name, record) => {
    const [key, pool] = [`odd: ${name}`, database.pool()];
    await pool.query("insert into holdfast_locks values (?, x'01', ?, 0, 4000000000000, 4000000000)", [
      key,
      record,
    ]);
    const locks = createLocks(database.store(pool));
    const [odd, good] = await Promise.allSettled([
      locks.mutex(key).tryAcquire(),
      locks.mutex(`good beside ${name}`).tryAcquire(),
    ]);
    expect(odd).toMatchObject({ status: "rejected", reason: { code: "STORE_FAILURE", key } });
    expect(good.status).toBe("fulfilled");
    const rows = await database.admin("select cast(lock_key as char) as k, record from holdfast_locks");
    expect(rows).toContainEqual({ k: key, record });
    await locks.close();
  });

  test("closing leaves the pool alone, and no connection in use", async () => {
    const pool = database.pool({ connectionLimit: 1 });
    const store = mysqlStore(pool, { durability });
    const locks = createLocks(store);
    await (await locks.mutex("closing").acquire()).release();
    await locks.close();
    await store.close();
    expect((await pool.query("select 1 as one"))[0]).toEqual([{ one: 1 }]);
    await expect(store.look({ key: "k", maxClaims: 0 })).rejects.toMatchObject({ code: "CLOSED" });
  });
});
