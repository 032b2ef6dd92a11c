import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { fenceMysql, fenceOf, MAX_FENCE, migrateMysqlFence } from "holdfast/fencing";
import {
  type Connection,
  createConnection,
  createPool,
  type Pool,
  type ResultSetHeader,
} from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunMariadb, type MariadbServer, startMariadb } from "../engines/mariadb.ts";
import { type Begin, describeInterleavings, outcome } from "./interleavings.ts";
import { checkRegister, type RegisterWrite } from "./register-model.ts";

describe.skipIf(!canRunMariadb())("mysql: fenced transactions", () => {
  let server: MariadbServer;
  let pool: Pool;

  beforeAll(async () => {
    server = await startMariadb();
    pool = createPool({ uri: server.url, connectionLimit: 20 });
    await migrateMysqlFence(pool);
    await pool.query(
      "create table register (id bigint auto_increment primary key, resource varchar(64), fence bigint, value text)",
    );
  }, 120_000);

  afterAll(async () => {
    await pool?.end();
    await server?.stop();
  });

  async function connect(options = {}): Promise<Connection> {
    const connection = await createConnection({ uri: server.url, ...options });
    onTestFinished(() => connection.destroy());
    return connection;
  }

  const begin: Begin = async ({ name }) => {
    const connection = await connect();
    await connection.query(`set transaction isolation level ${name}`);
    await connection.beginTransaction();
    return {
      look: () => connection.query("select count(*) from register"),
      guard: (resource, fence) => fenceMysql(connection, { fence }, { resource }),
      async waits() {
        // The server makes the list anew only if nobody has looked for a tenth of a second.
        await sleep(120);
        const [rows] = await pool.query(
          "select trx_state from information_schema.innodb_trx where trx_mysql_thread_id = ?",
          [connection.threadId],
        );
        return (rows as { trx_state: string }[])[0]?.trx_state === "LOCK WAIT";
      },
      commit: () => connection.commit(),
      rollback: () => connection.rollback(),
    };
  };

  const levels = ["read committed", "repeatable read", "serializable"];
  describeInterleavings(
    levels.map((name) => ({ name, undone: false })),
    begin,
  );

  test.each(["read committed", "repeatable read"])(
    "writers in any order agree with the model, at %s",
    async (level) => {
      await checkRegister({
        runs: 12,
        rollsBack: true,
        write: (write) => writeRegister(level, write),
        async written(resource) {
          const [rows] = await pool.query(
            "select cast(fence as char) as fence, value from register where resource = ? order by id",
            [resource],
          );
          return (rows as { fence: string; value: string }[]).map(({ fence, value }) => ({
            fence: BigInt(fence),
            value,
          }));
        },
      });
    },
  );

  async function writeRegister(
    level: string,
    { resource, fence, value, rollsBack }: RegisterWrite,
  ): Promise<void> {
    const connection = await pool.getConnection();
    try {
      await connection.query(`set transaction isolation level ${level}`);
      await connection.beginTransaction();
      await fenceMysql(connection, { fence }, { resource });
      await connection.query(
        "insert into register (resource, fence, value) values (?, cast(? as signed), ?)",
        [resource, String(fence), value],
      );
      await (rollsBack ? connection.rollback() : connection.commit());
    } catch (error) {
      await connection.rollback();
      throw error;
    } finally {
      connection.release();
    }
  }

  test("first writes to many new resources at once, in any order, end by waiting or by being run again", async () => {
    const resources = Array.from({ length: 6 }, (_, index) => `gap ${index}`);
    async function writeAll(order: readonly string[]): Promise<void> {
      const connection = await connect();
      for (;;) {
        await connection.query("set transaction isolation level repeatable read");
        await connection.beginTransaction();
        try {
          for (const resource of order) await fenceMysql(connection, { fence: 7n }, { resource });
          await connection.commit();
          return;
        } catch (error) {
          await connection.rollback();
          // Nothing else may come of a circle of waiting.
          if ((error as { code?: string }).code !== "STORE_UNAVAILABLE") throw error;
        }
      }
    }
    await Promise.all([resources, resources.toReversed(), resources, resources.toReversed()].map(writeAll));
    const [rows] = await pool.query("select fence from holdfast_fence where resource like 'gap %'");
    expect(rows).toEqual(resources.map(() => ({ fence: 7 })));
  });

  test("a circle of waiting is broken by the server, and told as something to run again", async () => {
    const [first, second] = [await connect(), await connect()];
    for (const connection of [first, second]) await connection.beginTransaction();
    await fenceMysql(first, { fence: 5n }, { resource: "circle a" });
    await fenceMysql(second, { fence: 5n }, { resource: "circle b" });
    const outcomes = await Promise.all([
      outcome(fenceMysql(first, { fence: 5n }, { resource: "circle b" })),
      outcome(fenceMysql(second, { fence: 5n }, { resource: "circle a" }).finally(() => second.rollback())),
    ]);
    expect(outcomes.sort()).toEqual(["again", "committed"]);
  });

  test("a mark that has moved since the snapshot may have to be looked at again", async (context) => {
    const connection = await connect();
    const [variables] = await connection.query("show variables like 'innodb_snapshot_isolation'");
    // MariaDB has it, and newer ones from the start; MySQL has not.
    if ((variables as unknown[]).length === 0) context.skip();
    await connection.query("set innodb_snapshot_isolation = on");
    await connection.beginTransaction();
    await connection.query("select count(*) from holdfast_fence");
    const other = await connect();
    await other.beginTransaction();
    await fenceMysql(other, { fence: 6n, key: "moved" });
    await other.commit();
    expect(await outcome(fenceMysql(connection, { fence: 5n, key: "moved" }))).toBe("again");
    await connection.rollback();
    await connection.beginTransaction();
    expect(await outcome(fenceMysql(connection, { fence: 5n, key: "moved" }))).toBe("STALE_FENCE");
  });

  test("a mark that is locked for too long may be tried again", async () => {
    const [holder, waiter] = [await connect(), await connect()];
    await holder.beginTransaction();
    await fenceMysql(holder, { fence: 5n, key: "held" });
    await waiter.query("set innodb_lock_wait_timeout = 1");
    await waiter.beginTransaction();
    expect(await outcome(fenceMysql(waiter, { fence: 6n, key: "held" }))).toBe("again");
  });

  test("a lease names its resource, and a refused write leaves nothing behind", async () => {
    const locks = createLocks();
    onTestFinished(() => locks.close());
    const stale = await locks.mutex("ledger").run(({ fence, key }) => ({ fence, key }));
    const lease = await locks.mutex("ledger").acquire();
    const connection = await connect();
    await connection.beginTransaction();
    await fenceMysql(connection, lease);
    await connection.commit();

    await connection.beginTransaction();
    await connection.query("insert into register (resource, value) values ('ledger', 'stale')");
    await expect(fenceMysql(connection, stale)).rejects.toMatchObject({
      code: "STALE_FENCE",
      key: "ledger",
      fence: stale.fence,
      mark: lease.fence,
    });
    await connection.rollback();
    const [rows] = await pool.query("select * from register where resource = 'ledger'");
    expect(rows).toEqual([]);
  });

  test.each([
    { supportBigNumbers: true, bigNumberStrings: true },
    { supportBigNumbers: false },
    { flags: ["-FOUND_ROWS"] },
    { decimalNumbers: true, namedPlaceholders: true },
  ])("fences are compared to the last digit, with %o", async (options) => {
    const connection = await connect(options);
    const resource = `digits ${JSON.stringify(options)}`;
    await connection.beginTransaction();
    await fenceMysql(connection, { fence: MAX_FENCE - 1n }, { resource });
    await fenceMysql(connection, { fence: MAX_FENCE }, { resource });
    await fenceMysql(connection, { fence: MAX_FENCE }, { resource });
    await expect(fenceMysql(connection, { fence: MAX_FENCE - 1n }, { resource })).rejects.toMatchObject({
      code: "STALE_FENCE",
      mark: MAX_FENCE,
    });
  });

  test("a fence in the row itself is compared to the last digit with a cast", async () => {
    await pool.query("create table report (id int primary key, body text, fence bigint not null)");
    await pool.query(`insert into report values (1, 'new', ${2n ** 53n + 1n})`);
    const statement =
      "update report set body = ?, fence = cast(? as signed) where id = 1 and fence <= cast(? as signed)";
    const write = async (fence: bigint) => {
      const text = String(fenceOf({ fence }));
      const [{ affectedRows }] = await pool.query<ResultSetHeader>(statement, ["old", text, text]);
      return affectedRows;
    };
    expect(await write(2n ** 53n)).toBe(0);
    expect(await write(2n ** 53n + 1n)).toBe(1);
  });

  test("without a transaction it is refused, but for a connection that needs none to begin one", async () => {
    const connection = await connect();
    await expect(fenceMysql(connection, { fence: 5n, key: "alone" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining("inside a transaction"),
    });
    await connection.query("set autocommit = 0");
    await fenceMysql(connection, { fence: 5n, key: "alone" });
    await connection.commit();
  });

  test("a pool, and a connection with callbacks, are refused", async () => {
    const refused = fenceMysql(pool as never, { fence: 5n, key: "pool" });
    await expect(refused).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await expect(fenceMysql({} as never, { fence: 5n, key: "pool" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
    const { connection } = (await connect()) as unknown as { connection: never };
    await expect(fenceMysql(connection, { fence: 5n, key: "pool" })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });

  test("the table is made once by many at a time, in another database too, and a missing one is told", async () => {
    await pool.query("create database billing");
    const table = "billing.fences";
    const connection = await connect();
    await connection.beginTransaction();
    await expect(fenceMysql(connection, { fence: 5n, key: "a" }, { table })).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("migrateMysqlFence"),
    });
    await Promise.all(Array.from({ length: 8 }, () => migrateMysqlFence(pool, { table })));
    await connection.beginTransaction();
    await fenceMysql(connection, { fence: 5n, key: "ä" }, { table });
    await connection.commit();
    const [rows] = await pool.query(
      "select convert(resource using utf8mb4) as resource, fence from billing.fences",
    );
    expect(rows).toEqual([{ resource: "ä", fence: 5 }]);
  });
});
