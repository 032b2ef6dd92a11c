/** What the application leaves behind in sessions of a pool that it shares with the store. */
import { randomUUID } from "node:crypto";
import { createLocks } from "holdfast";
import { migrateMysql } from "holdfast/mysql";
import { createConnection, type Pool } from "mysql2/promise";
import { describe, expect, onTestFinished, test } from "vitest";
import { canRunMariadb, isMysql } from "../../engines/mariadb.ts";
import { failure } from "../failure.ts";
import { useDatabase } from "./database.ts";

describe.skipIf(!canRunMariadb())(
  "mysql: sessions that the application has changed",
  { timeout: 30_000 },
  () => {
    const database = useDatabase();

    function open(pool: Pool, table = "holdfast_locks") {
      const locks = createLocks(database.store(pool, { table }), {
        requestTimeoutMs: 2_000,
        onWarning: () => {},
      });
      onTestFinished(() => locks.close());
      return locks;
    }

    test.each([
      "set sql_select_limit = 0",
      "set sql_select_limit = 1",
      "set sql_mode = 'ansi,no_backslash_escapes,pad_char_to_full_length'",
      "set sql_safe_updates = 1",
      ...(isMysql() ? [] : ["set sql_mode = oracle", "set sql_mode = 'empty_string_is_null'"]),
    ])("%s has no effect, also at first use", async (setting) => {
      const pool = database.pool({ connectionLimit: 1 });
      await pool.query(setting);
      const [locks, other] = [open(pool), open(database.pool())];
      const [key, second] = [`a ${setting}`, `b ${setting}`];
      const leases = [await locks.mutex(key).acquire(), await locks.mutex(second).acquire()];
      expect(await other.mutex(key).tryAcquire()).toBeNull();
      expect(await locks.inspect(key)).toMatchObject({ heldCount: 1 });
      const listed: string[] = [];
      for await (const { key } of locks.list()) listed.push(key);
      expect(listed).toEqual([key, second]);
      for (const lease of leases) expect(await lease.release()).toBe(true);
    });

    test.each([
      "set sql_select_limit = 0",
      "set sql_mode = 'ansi,no_backslash_escapes,pad_char_to_full_length'",
    ])("a migration after %s makes what works", async (setting) => {
      const table = `migrated_${randomUUID().slice(0, 8)}`;
      const connection = await createConnection(database.server.url);
      await connection.query(setting);
      await migrateMysql(connection, { table });
      await connection.end();
      const locks = open(database.pool(), table);
      await locks.mutex("k").run(() => {});
    });

    test.skipIf(isMysql())(
      "a migration in the mode of Oracle is refused before anything is made, with what to do",
      async () => {
        const table = `oracle_${randomUUID().slice(0, 8)}`;
        const connection = await createConnection(database.server.url);
        onTestFinished(() => connection.end());
        await connection.query("set sql_mode = oracle");
        expect(await failure(migrateMysql(connection, { table }))).toMatchObject({
          code: "STORE_FAILURE",
          message: expect.stringContaining("set sql_mode = ''"),
        });
        expect(await database.admin(`show tables like '${table}'`)).toEqual([]);
        await connection.query("set sql_mode = ''");
        await migrateMysql(connection, { table });
      },
    );

    test.each([
      ["lock tables other write", "a look", "STORE_FAILURE"],
      ["lock tables holdfast_locks read", "a look", "STORE_FAILURE"],
      ["lock tables other write", "an acquire", undefined],
      ["lock tables holdfast_locks read", "an acquire", undefined],
      ["flush tables with read lock", "a look", undefined],
      ["flush tables with read lock", "an acquire", "STORE_FAILURE"],
    ])("%s: of %s it comes to %s, and what was refused ends the session", async (left, what, code) => {
      await database.admin("create table if not exists other (value int)");
      const pool = database.pool({ connectionLimit: 1 });
      const locks = open(pool);
      const mutex = locks.mutex(`${left} ${what}`);
      await mutex.run(() => {});
      await pool.query(left);
      const called = what === "a look" ? locks.inspect("k") : mutex.run(() => {});
      if (code === undefined) await called;
      else {
        const message = expect.stringContaining("Run unlock tables before");
        expect(await failure(called)).toMatchObject({ code, message });
        await mutex.run(() => {});
      }
      await pool.query("unlock tables");
    });

    test.each([
      ["with all rows", "true", "inspect"],
      ["with all rows", "true", "tryAcquire"],
      ["without rows", "false", "tryAcquire"],
    ] as const)(
      "a temporary table of the same name %s does not hide the locks from %s %s",
      async (_, rows, call) => {
        const [locks, other] = [open(database.pool({ connectionLimit: 1 })), open(database.pool())];
        const key = `${rows} ${call}`;
        await other.mutex(key).acquire();
        const pool = database.pool({ connectionLimit: 1 });
        const shared = open(pool);
        await shared.mutex("before").run(() => {});
        await pool.query(
          `create temporary table holdfast_locks (primary key (lock_key)) select * from holdfast_locks where ${rows}`,
        );
        const error = await failure(
          call === "inspect" ? shared.inspect(key) : shared.mutex(key).tryAcquire(),
        );
        expect(error).toMatchObject({
          code: "STORE_FAILURE",
          message: expect.stringContaining("temporary table"),
        });
        expect(await locks.mutex(key).tryAcquire()).toBeNull();
        // The connection of the failed request is gone, and its temporary table with it.
        expect(await shared.mutex(key).tryAcquire()).toBeNull();
      },
    );
  },
);
