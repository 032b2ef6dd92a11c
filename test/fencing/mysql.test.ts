import { setTimeout as sleep } from "node:timers/promises";
import { fenceMysql, fenceOf, migrateMysqlFence } from "holdfast/fencing";
import {
  type Connection,
  createConnection,
  createPool,
  type Pool,
  type ResultSetHeader,
} from "mysql2/promise";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunMariadb, type MariadbServer, startMariadb } from "../engines/mariadb.ts";
import { outcome } from "./interleavings.ts";
import { expectLastDigit, registerTable, type SqlConnection, testFencedTransactions } from "./sql-fencing.ts";

describe.skipIf(!canRunMariadb())("mysql: fenced transactions", () => {
  let server: MariadbServer;
  let pool: Pool;

  beforeAll(async () => {
    server = await startMariadb();
    pool = createPool({ uri: server.url, connectionLimit: 20 });
    await migrateMysqlFence(pool);
    await pool.query(registerTable("bigint auto_increment"));
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

  async function admin(sql: string, values: number[] = []) {
    return (await pool.query(sql, values))[0] as Record<string, unknown>[];
  }

  async function newConnection(): Promise<SqlConnection> {
    const connection = await createConnection({ uri: server.url });
    // The server may end it.
    connection.on("error", () => {});
    return {
      async begin(level) {
        if (level !== undefined) await connection.query(`set transaction isolation level ${level}`);
        await connection.beginTransaction();
      },
      query: async (sql) => (await connection.query(sql))[0] as Record<string, unknown>[],
      fence: (lease, options) => fenceMysql(connection, lease, options),
      async waits() {
        // The server makes the list anew only if nobody has looked for a tenth of a second.
        await sleep(120);
        const [row] = await admin(
          "select trx_state from information_schema.innodb_trx where trx_mysql_thread_id = ?",
          [connection.threadId],
        );
        return row?.["trx_state"] === "LOCK WAIT";
      },
      cutOff: () => admin(`kill ${connection.threadId}`),
      end: () => connection.destroy(),
    };
  }

  testFencedTransactions({
    connect: newConnection,
    admin,
    fence: fenceMysql,
    migrate: (options) => migrateMysqlFence(pool, options),
    migration: "migrateMysqlFence",
    levels: ["read committed", "repeatable read", "serializable"].map((name) => ({ name, undone: false })),
    modelLevels: ["read committed", "repeatable read"],
    looksAt: "register",
    hurry: "set innodb_lock_wait_timeout = 1",
    makePlace: "create database billing",
    async strangers() {
      // A connection with callbacks.
      const { connection } = (await connect()) as unknown as { connection: unknown };
      return [pool, connection];
    },
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

  test.each([
    { supportBigNumbers: true, bigNumberStrings: true },
    { supportBigNumbers: false },
    { flags: ["-FOUND_ROWS"] },
    { decimalNumbers: true, namedPlaceholders: true },
  ])("fences are compared to the last digit, with %o", async (options) => {
    const connection = await connect(options);
    const resource = `digits ${JSON.stringify(options)}`;
    await connection.beginTransaction();
    await expectLastDigit((fence) => fenceMysql(connection, { fence }, { resource }));
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

  test("a connection that needs no statement to begin a transaction is in one", async () => {
    const connection = await connect();
    await connection.query("set autocommit = 0");
    await fenceMysql(connection, { fence: 5n, key: "without begin" });
    await connection.commit();
  });
});
