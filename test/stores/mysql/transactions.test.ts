/** What other transactions do to the store, and what the store does not do to them. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Store } from "holdfast";
import { migrateMysql } from "holdfast/mysql";
import { createConnection, type RowDataPacket } from "mysql2/promise";
import { describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMariadb } from "../../engines/mariadb.ts";
import { counted, useDatabase } from "./database.ts";
import { changeOf, newDriver, swapNow } from "./new-driver.ts";

describe.skipIf(!canRunMariadb())("mysql: transactions", () => {
  const database = useDatabase(["--innodb-lock-wait-timeout=3"]);

  /** Somebody who looks at a record for longer than is good. */
  async function lockRow(key: string) {
    const connection = await createConnection(database.server.url);
    onTestFinished(() => connection.end());
    await connection.query("start transaction");
    await connection.query("select version from holdfast_locks where lock_key = ? for update", [key]);
    return connection;
  }

  /** The transactions that there are. The server makes the list anew only if nobody has looked for a tenth of a second. */
  async function transactions(): Promise<readonly Record<string, unknown>[]> {
    await sleep(150);
    return database.admin(
      "select trx_state as state, trx_mysql_thread_id as thread from information_schema.innodb_trx",
    );
  }

  /** The thread that waits for a row. */
  async function waitingThread(): Promise<unknown> {
    return (await transactions()).find((transaction) => transaction["state"] === "LOCK WAIT")?.["thread"];
  }

  /** How often the server has undone a transaction because of a circle. */
  async function deadlocks(): Promise<number> {
    const rows = await database.admin(
      "select count from information_schema.innodb_metrics where name = 'lock_deadlocks'",
    );
    return Number(rows[0]?.["count"] ?? rows[0]?.["COUNT"]);
  }

  // The call reads the clock in time, waits for a locked row, and would write after its time.
  test("a swap that gets at its row only after its time writes nothing, and says so", async () => {
    const driver = newDriver(database.pool());
    await swapNow(driver, [changeOf("late", undefined, "before")]);
    const { records } = await driver.read(["late"]);
    const other = await lockRow("late");
    const swapping = swapNow(
      driver,
      [changeOf("late", records[0]?.version, "after"), changeOf("late too", undefined, "after")],
      500,
    );
    await until("the swap waits for the row", async () => (await waitingThread()) !== undefined);
    await sleep(600);
    await other.query("commit");
    expect((await swapping).results).toEqual([{ state: "untimely" }, { state: "untimely" }]);
    expect((await driver.read(["late", "late too"])).records).toEqual([records[0], undefined]);
  });

  test("a row that another transaction holds for too long is an outage, and nothing of the batch is written", async () => {
    const driver = newDriver(database.pool());
    await swapNow(driver, [changeOf("stuck", undefined, "before")]);
    const { records } = await driver.read(["stuck"]);
    await lockRow("stuck");
    const changes = [
      changeOf("a first", undefined, "after"),
      changeOf("stuck", records[0]?.version, "after"),
    ];
    await expect(swapNow(driver, changes)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect((await driver.read(["a first", "stuck"])).records).toEqual([undefined, records[0]]);
  });

  test.for(["pool", "connection"])(
    "a swap that is killed leaves no transaction open, over a %s",
    async (kind) => {
      const key = `killed over a ${kind}`;
      const connection = await createConnection(database.server.url);
      onTestFinished(() => connection.end());
      const driver = kind === "pool" ? newDriver(database.pool()) : newDriver(connection as never);
      await swapNow(driver, [changeOf(key, undefined, "before")]);
      const { records } = await driver.read([key]);
      const other = await lockRow(key);
      const swapping = swapNow(driver, [
        changeOf(`a ${key}`, undefined, "after"),
        changeOf(key, records[0]?.version, "after"),
      ]);
      const failing = expect(swapping).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      await until("the swap waits for the row", async () => (await waitingThread()) !== undefined);
      const waiting = await database.admin(
        "select trx_mysql_thread_id as id from information_schema.innodb_trx where trx_state = 'LOCK WAIT'",
      );
      await database.admin(`kill query ${waiting[0]?.["id"]}`);
      await failing;
      await other.query("rollback");
      await until("no transaction is open", async () => (await transactions()).length === 0);
      const { results } = await swapNow(driver, [changeOf(`a ${key}`, undefined, "after")]);
      expect(results[0]?.state).toBe("swapped");
    },
  );

  test.for([
    ["known", "known"],
    ["known", "guessed"],
    ["guessed", "known"],
    ["guessed", "guessed"],
  ])(
    "a batch that waits for a %s key has not yet locked a %s one that comes after it",
    async ([first, second]) => {
      const driver = newDriver(database.pool());
      const [a, b] = [`${first} ${second} a`, `${first} ${second} b`];
      const made = await swapNow(driver, [
        changeOf(a, undefined, "before"),
        changeOf(b, undefined, "before"),
      ]);
      const { version } = made.results[0] as { version: string };
      const other = await lockRow(a);
      const expected = (kind: string | undefined) => (kind === "known" ? version : undefined);
      const changes = [changeOf(b, expected(second), "after"), changeOf(a, expected(first), "after")];
      const swapping = swapNow(driver, changes);
      await until("the swap waits for the row", async () => (await waitingThread()) !== undefined);
      await other.query("select version from holdfast_locks where lock_key = ? for update nowait", [b]);
      await other.query("commit");
      const states = { known: "swapped", guessed: "conflict" } as Readonly<Record<string, string>>;
      expect((await swapping).results.map(({ state }) => state)).toEqual([states[second!], states[first!]]);
    },
  );

  test("a deadlock with other statements is undone as a whole, and the batch is sent again", async () => {
    const pool = counted(database.pool());
    const driver = newDriver(pool);
    const keys = ["round a", "round b", "round c"];
    const made = await swapNow(
      driver,
      keys.map((key) => changeOf(key, undefined, "before")),
    );
    const [, second] = made.results as [unknown, { version: string }];
    const other = await lockRow("round b");
    // The server undoes whoever has done less.
    await other.query("create temporary table much (value int) engine = innodb");
    await other.query(
      "insert into much values (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12)",
    );
    const changes = keys.map((key) => changeOf(key, second.version, "after"));
    pool.sent.length = 0;
    const swapping = swapNow(driver, [...changes, changeOf("round 0", undefined, "after")]);
    await until("the swap waits for the row", async () => (await waitingThread()) !== undefined);
    await other.query("select version from holdfast_locks where lock_key = 'round a' for update");
    await other.query("commit");
    expect((await swapping).results.map(({ state }) => state)).toEqual(Array(4).fill("swapped"));
    // The time, and the call twice.
    expect(pool.sent).toHaveLength(3);
  });

  test("those that insert a key right after the sweep removed it may be in a circle, and are sent again", async () => {
    const driver = newDriver(database.pool({ connectionLimit: 8 }));
    const swept = { ...changeOf("swept", undefined, "before"), idle: true, keepUntilMs: 1_000 };
    await swapNow(driver, [swept]);
    const sweeper = await createConnection(database.server.url);
    onTestFinished(() => sweeper.end());
    await sweeper.query("set transaction isolation level read committed");
    await sweeper.query("start transaction");
    await sweeper.query("delete from holdfast_locks where lock_key = 'swept' and keep_until_ms < 5000");
    const before = await deadlocks();
    const inserting = [1, 2, 3].map((nth) => swapNow(driver, [changeOf("swept", undefined, `by ${nth}`)]));
    await until("all wait for the row", async () => {
      const states = (await transactions()).map(({ state }) => state);
      return states.filter((state) => state === "LOCK WAIT").length === 3;
    });
    await sweeper.query("commit");
    const states = (await Promise.all(inserting)).map(({ results }) => results[0]?.state);
    expect(states.toSorted()).toEqual(["conflict", "conflict", "swapped"]);
    expect(await deadlocks()).toBeGreaterThan(before);
  });

  test("batches of the same keys in any order never wait for each other in a circle", async () => {
    const drivers = [newDriver(database.pool()), newDriver(database.pool()), newDriver(database.pool())];
    const keys = Array.from({ length: 12 }, (_, index) => `circle ${index}`);
    const before = await deadlocks();
    const written = await Promise.all(
      drivers.map(async (driver, number) => {
        let count = 0;
        for (let round = 0; round < 30; round++) {
          // Some keys are known, and some are guessed to be absent, each to another driver.
          const { records } = await driver.read(keys);
          const changes = keys.map((key, index) => {
            const known = (index + number + round) % 3 === 0 ? undefined : records[index]?.version;
            return changeOf(key, known, `${number} ${round}`);
          });
          const shuffled = changes.toSorted((a, b) =>
            a.key.at(-1)! < b.key.at(-1)! ? number - 1 : 1 - number,
          );
          const { results } = await swapNow(driver, shuffled);
          count += results.filter(({ state }) => state === "swapped").length;
        }
        return count;
      }),
    );
    expect(Math.min(...written)).toBeGreaterThan(0);
    expect(await deadlocks()).toBe(before);
  });

  test.for(["commit", "rollback"])(
    "a connection in a transaction of somebody else is refused, and that transaction goes on to its %s",
    async (end) => {
      const connection = await createConnection(database.server.url);
      onTestFinished(() => connection.end());
      await connection.query("create temporary table mine (value int) engine = innodb");
      await connection.query("start transaction");
      await connection.query("insert into mine values (1)");
      const store = database.store(connection as never);
      const locks = createLocks(store);
      await expect(locks.mutex("theirs").tryAcquire()).rejects.toMatchObject({ code: "STORE_FAILURE" });
      await expect(newDriver(connection as never).sweep?.(1)).rejects.toMatchObject({
        code: "STORE_FAILURE",
      });
      await connection.query(end);
      const [rows] = await connection.query<RowDataPacket[]>("select * from mine");
      expect(rows).toHaveLength(end === "commit" ? 1 : 0);
      const lease = await locks.mutex("theirs").tryAcquire();
      expect(await lease?.release()).toBe(true);
    },
  );

  test("a connection without autocommit is refused, which would go on seeing the past", async () => {
    const connection = await createConnection(database.server.url);
    onTestFinished(() => connection.end());
    await connection.query("set autocommit = 0");
    const locks = createLocks(database.store(connection as never));
    await expect(locks.mutex("past").tryAcquire()).rejects.toThrow("autocommit off");
  });

  test("a server that becomes read-only is an outage until it is not, also for users who may write all the same", async () => {
    const locks = createLocks(database.store(database.pool()), { requestTimeoutMs: 500 });
    const lease = await locks.mutex("failover", { ttlMs: 20_000 }).acquire();
    await database.admin("set global read_only = 1");
    try {
      const asked = locks.mutex("another").tryAcquire();
      await expect(asked).rejects.toMatchObject({
        code: "STORE_UNAVAILABLE",
        message: expect.stringContaining("Point the pool at the primary."),
        cause: { cause: { errno: 1290 } },
      });
    } finally {
      await database.admin("set global read_only = 0");
    }
    expect(await lease.release()).toBe(true);
  });

  /** Closed at the end, as what was given up may be tried once more, and be done when the server takes writes. */
  async function use(store: Store): Promise<void> {
    const locks = createLocks(store, { requestTimeoutMs: 500 });
    try {
      await (await locks.mutex("k").tryAcquire())?.release();
    } finally {
      await locks.close();
    }
  }

  test.each([
    ["a store", (table: string) => use(database.store(database.pool(), { table, autoMigrate: true }))],
    ["a migration", (table: string) => migrateMysql(database.pool(), { table })],
  ])("%s makes no table on a server that is read-only, also not for users who may", async (by, ask) => {
    const table = `made by ${by}`.replaceAll(" ", "-");
    await database.admin("set global read_only = 1");
    try {
      await expect(ask(table)).rejects.toMatchObject({
        code: "STORE_UNAVAILABLE",
        message: expect.stringContaining("read_only is on"),
      });
    } finally {
      await database.admin("set global read_only = 0");
    }
    const made = (what: string, name: string) =>
      database.admin(`select 1 from information_schema.${what} where ${name} like '${table}%'`);
    expect([...(await made("tables", "table_name")), ...(await made("routines", "routine_name"))]).toEqual(
      [],
    );
    // It is made once the server takes writes.
    await ask(table);
    expect(await made("tables", "table_name")).toHaveLength(1);
  });

  test("nothing is swept on a server that is read-only, also not for users who may write all the same", async () => {
    const driver = newDriver(database.pool());
    await swapNow(driver, [{ ...changeOf("old", undefined, "kept"), idle: true, keepUntilMs: 1_000 }]);
    await database.admin("set global read_only = 1");
    try {
      await expect(driver.sweep?.(10)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    } finally {
      await database.admin("set global read_only = 0");
    }
    expect((await driver.read(["old"])).records[0]?.text).toBe("kept");
  });

  test("a server that becomes read-only while a swap waits for a row gets nothing of it", async () => {
    const driver = newDriver(database.pool());
    const keys = ["ro a", "ro c"];
    const made = await swapNow(
      driver,
      keys.map((key) => changeOf(key, undefined, "before")),
    );
    const { version } = made.results[0] as { version: string };
    const [first, last] = [await lockRow("ro a"), await lockRow("ro c")];
    const changes = [
      changeOf("ro b", undefined, "after"),
      ...keys.map((key) => changeOf(key, version, "after")),
    ];
    const swapping = expect(swapNow(driver, changes)).rejects.toMatchObject({ cause: { errno: 1290 } });
    await until("the swap waits for the first row", async () => (await waitingThread()) !== undefined);
    // Now, so that it is on as soon as the statement that waits has ended.
    const becoming = database.admin("set global read_only = 1");
    try {
      await until("it is about to be read-only", async () => {
        const threads = await database.admin("show processlist");
        return threads.some(({ Info }) => Info === "set global read_only = 1");
      });
      await first.query("commit");
      await becoming;
      await last.query("commit");
      await swapping;
    } finally {
      await becoming;
      await database.admin("set global read_only = 0");
    }
    const texts = (await driver.read(["ro a", "ro b", "ro c"])).records.map((record) => record?.text);
    expect(texts).toEqual(["before", undefined, "before"]);
  });

  // With `set timestamp` it would drop claims of others as expired.
  test("a session with a clock of its own is refused, and makes no second holder", async () => {
    const lease = await createLocks(database.store(database.pool()))
      .mutex("clock", { ttlMs: 60_000 })
      .acquire();
    const connection = await createConnection(database.server.url);
    onTestFinished(() => connection.end());
    await connection.query("set timestamp = unix_timestamp() + 7200");
    const ahead = database.store(connection as never);
    const asked = createLocks(ahead).mutex("clock").tryAcquire();
    await expect(asked).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("set timestamp"),
    });
    await expect(newDriver(connection as never).sweep?.(1)).rejects.toMatchObject({ code: "STORE_FAILURE" });
    expect(await lease.release()).toBe(true);
  });

  test.for(["chain", "release"])(
    "a session that would %s with each commit has the store's transactions like any other",
    async (completion) => {
      const connection = await createConnection(database.server.url);
      onTestFinished(() => connection.end());
      await connection.query(`set completion_type = '${completion}'`);
      const driver = newDriver(connection as never);
      for (const nth of [1, 2]) {
        const { results } = await swapNow(driver, [changeOf(`${completion} ${nth}`, undefined, "text")]);
        expect(results[0]?.state).toBe("swapped");
        expect(await driver.sweep?.(0)).toBe(0);
      }
      const [rows] = await connection.query<RowDataPacket[]>(
        "select count(*) as sessions from information_schema.innodb_trx where trx_mysql_thread_id = connection_id()",
      );
      expect(rows[0]?.["sessions"]).toBe(0);
    },
  );

  // After `use` the store would find another table.
  test("a store stays with the database of its first use, wherever its connections are pointed to", async () => {
    await database.admin("create database `else where`");
    const pool = database.pool({ connectionLimit: 1 });
    await pool.query("use `else where`");
    await migrateMysql(pool);
    await pool.query("use holdfast");
    const locks = createLocks(database.store(pool));
    const lease = await locks.mutex("where").acquire();
    await pool.query("use `else where`");
    expect(await locks.mutex("where").tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
    const elsewhere = createLocks(database.store(pool));
    const other = await elsewhere.mutex("where").acquire();
    await pool.query("use holdfast");
    expect(await locks.mutex("where").tryAcquire()).not.toBeNull();
    expect(await other.release()).toBe(true);
  });

  test("settings of a session have no effect", async () => {
    const pool = database.pool({
      charset: "latin1_swedish_ci",
      timezone: "+09:00",
      rowsAsArray: true,
      supportBigNumbers: true,
      bigNumberStrings: true,
      namedPlaceholders: true,
      typeCast: () => "nonsense",
      flags: ["-FOUND_ROWS"],
    });
    pool.on("connection", (connection) => {
      connection.query("set sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,NO_ZERO_DATE', time_zone = '+09:00'");
      connection.query("set session transaction isolation level serializable");
      connection.query("set session transaction read only");
      connection.query("set sql_safe_updates = 1");
    });
    const key = `'"\\ ü 😀 %_`;
    const [odd, plain] = [createLocks(database.store(pool)), createLocks(database.store(database.pool()))];
    const lease = await odd.mutex(key).acquire({ info: "'\\\" 😀" });
    expect((await plain.inspect(key)).held).toMatchObject([
      { id: lease.id, info: "'\\\" 😀", fence: lease.fence },
    ]);
    expect(await plain.mutex(key).tryAcquire()).toBeNull();
    expect(Math.abs(lease.expiresAtMs - Date.now() - 30_000)).toBeLessThan(5_000);
    expect(await lease.release()).toBe(true);
  });
});
