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
import { canRunMariadb, isMysql, type MariadbServer, startMariadb } from "../engines/mariadb.ts";
import type { Level } from "./interleavings.ts";
import { expectLastDigit, registerTable, type SqlConnection, testFencedTransactions } from "./sql-fencing.ts";

/** MariaDB has it, and newer ones from the start; MySQL has not. */
const ISOLATED = " with innodb_snapshot_isolation";

const levels: readonly Level[] = [
  { name: "read committed", undone: "none" },
  { name: "repeatable read", undone: "none" },
  { name: "serializable", undone: "none" },
];

const isolatedLevels: readonly Level[] = [
  { name: `read committed${ISOLATED}`, undone: "none" },
  { name: `repeatable read${ISOLATED}`, undone: "those with a snapshot" },
  { name: `serializable${ISOLATED}`, undone: "all" },
];

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
    async function setLevel(level: string): Promise<void> {
      const isolated = level.endsWith(ISOLATED);
      if (!isMysql()) await connection.query(`set innodb_snapshot_isolation = ${isolated ? "on" : "off"}`);
      await connection.query(`set transaction isolation level ${level.replace(ISOLATED, "")}`);
    }
    return {
      async begin(level) {
        if (level !== undefined) await setLevel(level);
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
    levels: isMysql() ? levels : [...levels, ...isolatedLevels],
    modelLevels: ["read committed", "repeatable read", ...(isMysql() ? [] : [`serializable${ISOLATED}`])],
    looksAt: "register",
    hurry: "set innodb_lock_wait_timeout = 1",
    makePlace: "create database billing",
    async strangers() {
      // A connection with callbacks.
      const { connection } = (await connect()) as unknown as { connection: unknown };
      return [pool, connection];
    },
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
