/**
 * Fenced transactions in MySQL and MariaDB.
 *
 * The guard inserts the mark or raises it in one statement, which locks its row until the end of the transaction whether it
 * changes it or not, and then reads what stands there. Both are made on the row as it is now, whatever snapshot the transaction
 * reads from. The interleavings, with an older holder O (fence 5) and a newer one N (fence 6):
 *
 * - N's guard ran, and N has not committed. O's guard waits for the row. After N's commit it finds 6, at every isolation level:
 *   STALE_FENCE. If N rolls back, O finds what was there before and is let through.
 * - O's guard ran first. N waits for O's end, and comes after it.
 * - O's snapshot is older than N's commit. The mark is not read from the snapshot: STALE_FENCE.
 * - With innodb_snapshot_isolation, the default from MariaDB 11.6 on, who comes upon a mark that is newer than its snapshot gets
 *   error 1020 instead: run the transaction again. At REPEATABLE READ that is who has read something before its guard; at
 *   SERIALIZABLE it is also who has waited for another one's commit.
 * - Neither finds a row. To look first and insert then would lock the gap for both, and each would wait for the other (1213). The
 *   insert comes first: the second waits for the first's row and then raises it. If the first rolls back while several wait,
 *   the server may still see a circle and break it with 1213; that transaction is rolled back, and may be run again.
 *
 * `test/fencing/mysql.test.ts` has a test of each.
 */
import { HoldfastError, invalid } from "../store/index.ts";
import { type Fenced, fenceOf, resourceOf, StaleFenceError } from "./fence.ts";
import { mysqlError, noTransaction } from "./sql-errors.ts";
import { type FenceTable, quotedTable, type SqlFenceOptions } from "./sql-table.ts";

/** A connection of `mysql2/promise` with a transaction of the caller's on it. */
export interface MysqlTransaction {
  query(query: { sql: string; rowsAsArray: boolean }): Promise<[unknown, unknown]>;
}

/** The flag by which the server says that a transaction is open. */
const IN_TRANSACTION = 1;

/**
 * Lets the transaction go on if its fence is not older than any that has written to the resource, and throws STALE_FENCE
 * otherwise. Until the end of the transaction nobody else gets past it, so call it first, before anything is read that the
 * writes depend on.
 *
 * `STORE_UNAVAILABLE` means that the transaction may be run again as a whole. After any error, roll back.
 *
 * @example
 * await connection.beginTransaction();
 * await fenceMysql(connection, lease);
 * await connection.query("update accounts set …");
 * await connection.commit();
 */
export async function fenceMysql(
  connection: MysqlTransaction,
  lease: Fenced,
  options: SqlFenceOptions = {},
): Promise<void> {
  const table = quotedTable(options.table, "`");
  checkConnection(connection);
  const fence = fenceOf(lease);
  const resource = resourceOf(lease, options.resource);
  try {
    const [raised] = await connection.query({ sql: raiseMark(table, resource, fence), rowsAsArray: true });
    const { serverStatus } = Object(raised) as { serverStatus?: unknown };
    if (typeof serverStatus !== "number") throw wrongAnswer();
    if ((serverStatus & IN_TRANSACTION) === 0) throw noTransaction("connection", "start transaction");
    const [rows] = await connection.query({ sql: readMark(table, resource), rowsAsArray: true });
    const mark = markIn(rows);
    if (mark > fence) throw new StaleFenceError(resource, fence, mark);
  } catch (error) {
    throw mysqlError(error);
  }
}

/** Makes the table, where it is missing. Safe to repeat. It ends a transaction that is open, as every such statement does. */
export async function migrateMysqlFence(client: MysqlTransaction, options: FenceTable = {}): Promise<void> {
  const sql = mysqlFenceMigration(options);
  if (typeof Object(client).query !== "function") throw wrongConnection(client);
  try {
    await client.query({ sql, rowsAsArray: true });
  } catch (error) {
    throw mysqlError(error);
  }
}

/** The same as text, for a migration tool. Resources are bytes, so that no collation takes two of them for one. */
export function mysqlFenceMigration(options: FenceTable = {}): string {
  return `create table if not exists ${quotedTable(options.table, "`")} (
  resource varbinary(512) not null primary key,
  fence bigint not null
) engine = innodb`;
}

/** Values stand in the statement as bytes and digits, which mean the same whatever the connection is set to. */
function raiseMark(table: string, resource: string, fence: bigint): string {
  return `insert into ${table} (resource, fence) values (${bytes(resource)}, ${fence})
on duplicate key update fence = greatest(fence, ${fence})`;
}

/** As text: a number of JavaScript cannot tell all fences apart. */
function readMark(table: string, resource: string): string {
  return `select cast(fence as char) from ${table} where resource = ${bytes(resource)} for update`;
}

function bytes(text: string): string {
  return `x'${Buffer.from(text).toString("hex")}'`;
}

function markIn(rows: unknown): bigint {
  const row: unknown = Array.isArray(rows) ? rows[0] : undefined;
  const text = Array.isArray(row) ? String(row[0]) : "";
  if (!/^-?\d+$/.test(text)) throw wrongAnswer();
  return BigInt(text);
}

function checkConnection(connection: MysqlTransaction): void {
  const { query, getConnection, promise } = Object(connection) as Record<string, unknown>;
  if (typeof getConnection === "function") {
    throw invalid(
      "connection must be one connection with a transaction on it, not a pool, whose queries may go to different connections. Pass the result of await pool.getConnection().",
    );
  }
  // Only a connection with callbacks offers to be made another one.
  if (typeof query !== "function" || typeof promise === "function") throw wrongConnection(connection);
}

function wrongConnection(connection: unknown): Error {
  return invalid(
    `connection must be a Connection of mysql2/promise, not ${connection === null ? "null" : typeof connection}.`,
  );
}

function wrongAnswer(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The connection does not answer like a Connection of mysql2/promise, so the result is unknown. Roll back, and pass such a connection.",
  );
}
