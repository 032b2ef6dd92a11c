/** Mistakes are told when a store is made or first used, and nothing is half done. */
import { createLocks, type Store, StoreUnavailableError } from "holdfast";
import { type MysqlClient, type MysqlStoreOptions, migrateMysql, mysqlStore } from "holdfast/mysql";
import { createPool as createCallbackPool } from "mysql2";
import { createPool } from "mysql2/promise";
import { Client, Pool } from "pg";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Send } from "../../../src/stores/mysql/client.ts";
import { mysqlDriver } from "../../../src/stores/mysql/driver.ts";
import { mapError } from "../../../src/stores/mysql/errors.ts";
import { checkVersion } from "../../../src/stores/mysql/readiness.ts";
import { inDatabase, tableNames } from "../../../src/stores/mysql/table.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { testDamagedRecords } from "../damaged-records.ts";
import { failure } from "../failure.ts";
import { testTables } from "../sql-tables.ts";
import { counted, useDatabase } from "./database.ts";
import { changeOf } from "./new-driver.ts";

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
    ["no time for a request", { requestTimeoutMs: 0 }, "requestTimeoutMs must be"],
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
    ["pool", new Pool()],
    ["client", new Client()],
  ])("a %s of pg is refused, and sent where it belongs", (_, client) => {
    expect(() => mysqlStore(client as MysqlClient)).toThrow(
      expect.objectContaining({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("of pg. Pass it to postgresStore"),
      }),
    );
  });

  test("a migration is given options, and nothing in place of them", async () => {
    const refused = /^The options of migrateMysql must be an object with table, not "locks"/;
    await expect(migrateMysql(pool, "locks" as never)).rejects.toThrow(refused);
  });

  test("a pool that was ended is a failure and no outage", async () => {
    const ended = createPool({ host: "127.0.0.1" });
    const store = mysqlStore(ended);
    onTestFinished(() => store.close());
    await ended.end();
    expect(await failure(store.acquire(claimRequest("id", { ttlMs: 10_000 })))).toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("was ended"),
    });
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
    "8.0.33",
    "8.0.36",
    "8.4.2",
    "9.7.4-2",
    "10.6.0-MariaDB",
    "10.11.19-MariaDB-0+deb12u1",
    "11.4.2-MariaDB",
  ])("%s is new enough", (version) => expect(() => checkVersion(version)).not.toThrow());

  test.each([
    "5.7.44-log",
    "8.0.3",
    "8.0.15",
    "8.0.32",
    "10.5.28-MariaDB",
    "5.5.68-MariaDB",
    "something else",
  ])("%s is too old", (version) =>
    expect(() => checkVersion(version)).toThrow(expect.objectContaining({ code: "UNSUPPORTED" })),
  );
});

describe("mysql: the right to remove old records", () => {
  /** A driver over a server that answers the question for it in this way, and what that server is sent. */
  function asked(explain: () => Promise<Awaited<ReturnType<Send>>>) {
    const sent: string[] = [];
    const driver = mysqlDriver({
      send: async (sql) => {
        const verb = sql.slice(0, sql.indexOf(" "));
        sent.push(verb);
        return verb === "explain" ? explain() : [[[1, 1_000]]];
      },
      names: inDatabase(tableNames("locks"), "holdfast"),
      autoMigrate: false,
      durability: "ephemeral",
      maxRecordBytes: 1_000,
    });
    const swap = () =>
      driver.swap({ changes: [changeOf("k", undefined, "t")], earliestMs: 0, latestMs: 9_000 });
    return { sent, swap };
  }

  test.each([
    ["no answer", () => new StoreUnavailableError("MySQL is unavailable: it did not answer.")],
    ["a lost connection", () => mapError({ code: "PROTOCOL_CONNECTION_LOST" })],
    ["a server that is being shut down", () => mapError({ errno: 1053 })],
  ])("is asked for again after %s, which is told as the outage that it is", async (_, outage) => {
    let isDown = true;
    const { sent, swap } = asked(async () => {
      if (isDown) throw outage();
      return [];
    });
    expect(await failure(swap())).toMatchObject({ code: "STORE_UNAVAILABLE" });
    isDown = false;
    await swap();
    await swap();
    expect(sent).toEqual(["explain", "explain", "call", "call"]);
  });

  test.each([
    ["does not understand the question", 1064],
    ["explains nothing to a session that only reads", 1792],
  ])("is not asked for again where the server %s", async (_, errno) => {
    const { sent, swap } = asked(async () => {
      throw mapError({ errno });
    });
    await swap();
    await swap();
    expect(sent).toEqual(["explain", "call", "call"]);
  });
});

describe.skipIf(!canRunMariadb())("mysql: first use", () => {
  const database = useDatabase();
  const durability = "ephemeral";

  testTables({
    open: ({ user = "holdfast", ...options }) =>
      mysqlStore(database.pool({ uri: database.server.url.replace("holdfast@", `${user}@`) }), {
        durability,
        ...options,
      }),
    migrate: (table) => migrateMysql(database.pool(), { table }),
    admin: (sql) => database.admin(sql),
    migration: "migrateMysql",
    page: "docs/stores/mysql.md",
    quote: "`",
    makePlace: (name) => `create database ${name}`,
    dropRoutine: (table) => `drop procedure ${table}_swap_v1`,
    makeUser: (name, table, rights) => [
      `create user ${name}@'127.0.0.1'`,
      ...[
        `${rights} on holdfast.${table}`,
        `execute on procedure holdfast.${table}_swap_v1`,
        `execute on procedure holdfast.${table}_sweep_v1`,
      ].map((grant) => `grant ${grant} to ${name}@'127.0.0.1'`),
    ],
    grant: (name, table, rights) => [`grant ${rights} on holdfast.${table} to ${name}@'127.0.0.1'`],
    hide: (name, table) => [
      `revoke execute on procedure holdfast.${table}_swap_v1 from ${name}@'127.0.0.1'`,
      `revoke execute on procedure holdfast.${table}_sweep_v1 from ${name}@'127.0.0.1'`,
    ],
  });

  test.each([
    ["8.0.32", "a store", /^The server is MySQL 8\.0\.32, .* MySQL 8\.0\.33 or newer\. Upgrade/],
    ["5.7.44-log", "a migration", /^The server is MySQL 5\.7\.44-log, .* 8\.0\.33 or newer\. Upgrade/],
    [
      "10.5.28-MariaDB",
      "a store",
      /^The server is MariaDB 10\.5\.28-MariaDB, .* 10\.6\.0 or newer\. Upgrade/,
    ],
    ["10.5.28-MariaDB", "a migration", /^The server is MariaDB .* MariaDB 10\.6\.0 or newer\. Upgrade/],
  ])(
    "a server of version %s is refused by %s that would make the table, and nothing is made",
    async (version, by, message) => {
      const pool = counted(database.pool(), (sql) => sql.replace("version()", `'${version}'`));
      const store = database.store(pool, { table: "outdated", autoMigrate: true });
      const told = await failure(
        by === "a store" ? store.acquire(claimRequest("id")) : migrateMysql(pool, { table: "outdated" }),
      );
      expect(told).toMatchObject({ code: "UNSUPPORTED", message: expect.stringMatching(message) });
      expect(pool.sent).toHaveLength(1);
      expect(pool.sent[0]).toMatch(/^select/);
      expect(await database.admin("show tables like 'outdated'")).toEqual([]);
    },
  );

  test("a connection without a database is refused with advice", async () => {
    const pool = database.pool({ uri: database.server.url.replace(/\/holdfast$/, "") });
    const message = expect.stringContaining("no database");
    await expect(use(mysqlStore(pool, { durability }))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message,
    });
    await use(mysqlStore(pool, { durability, table: "holdfast.holdfast_locks" }));
  });

  test("tables whose names differ only in case are distinguished", async () => {
    await migrateMysql(database.pool(), { table: "both" });
    await database.admin("create table `Both` (value int) engine = MyISAM");
    await use(mysqlStore(database.pool(), { durability, table: "both" }));
  });

  test("a table of an engine without transactions is refused", async () => {
    await migrateMysql(database.pool(), { table: "plain" });
    await database.admin("alter table plain engine = MyISAM");
    await expect(use(mysqlStore(database.pool(), { durability, table: "plain" }))).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("engine = InnoDB"),
    });
  });

  test("a server that may lose commits is refused, unless the option says ephemeral", async () => {
    await expect(use(mysqlStore(database.pool()))).rejects.toMatchObject({
      code: "DURABILITY_UNAVAILABLE",
      message: expect.stringContaining("innodb_flush_log_at_trx_commit"),
    });
    await database.admin("set global innodb_flush_log_at_trx_commit = 1");
    await use(mysqlStore(database.pool()));
    await database.admin("set global innodb_flush_log_at_trx_commit = 2");
  });

  test("a server with too small a max_allowed_packet is refused, and smaller records work", async () => {
    await database.admin("set global max_allowed_packet = 4194304");
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

  testDamagedRecords({
    put: (key, record) =>
      database
        .pool()
        .query("insert into holdfast_locks values (?, x'01', ?, 0, 4000000000000, 4000000000)", [
          key,
          record,
        ]),
    textOf: async (key) =>
      (await database.admin(`select record from holdfast_locks where lock_key = '${key}'`))[0]?.["record"],
    open: () => mysqlStore(database.pool(), { durability }),
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
