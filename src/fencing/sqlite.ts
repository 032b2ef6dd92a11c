/**
 * Fenced transactions in SQLite.
 *
 * SQLite has one writer at a time for the whole database, so of two transactions the one whose guard runs second finds the mark
 * of the first, or what was there before if the first rolled back. A transaction that has read before it writes ("begin" without
 * "immediate") and was overtaken by a commit is refused by SQLite as busy, and has to be run again: it never passes by an old
 * snapshot. `test/fencing/sqlite.test.ts` has a test of each.
 */
import { invalid } from "../store/index.ts";
import { type Fenced, fenceOf, resourceOf, StaleFenceError } from "./fence.ts";
import { noTransaction, sqliteError } from "./sql-errors.ts";
import { type FenceTable, quotedTable, type SqlFenceOptions } from "./sql-table.ts";

/** A database of better-sqlite3, node:sqlite or node-sqlite3-wasm, or anything that is shaped like one of them. */
export type SqliteDatabase = PreparingDatabase | RunningDatabase;

/** What better-sqlite3 and node:sqlite have in common. */
export interface PreparingDatabase {
  exec(sql: string): unknown;
  prepare(sql: string): {
    run(...values: string[]): { readonly changes: number | bigint };
    get(...values: string[]): unknown;
  };
  /** better-sqlite3. */
  readonly inTransaction?: boolean;
  /** node:sqlite, in newer versions of Node. */
  readonly isTransaction?: boolean;
}

/** node-sqlite3-wasm, whose statements would have to be finalized. */
export interface RunningDatabase {
  exec(sql: string): unknown;
  run(sql: string, values: string[]): { readonly changes: number | bigint };
  get(sql: string, values: string[]): unknown;
  readonly inTransaction: boolean;
}

/**
 * Lets the transaction go on if its fence is not older than any that has written to the resource, and throws STALE_FENCE
 * otherwise. Call it first in the transaction, which should begin with "begin immediate".
 *
 * @example
 * db.exec("begin immediate");
 * try {
 *   fenceSqlite(db, lease);
 *   db.prepare("update accounts set …").run();
 *   db.exec("commit");
 * } catch (error) {
 *   db.exec("rollback");
 *   throw error;
 * }
 */
export function fenceSqlite(database: SqliteDatabase, lease: Fenced, options: SqlFenceOptions = {}): void {
  const table = quotedTable(options.table, '"');
  checkDatabase(database);
  const fence = fenceOf(lease);
  const resource = resourceOf(lease, options.resource);
  try {
    if (!isInTransaction(database)) throw noTransaction("database", "begin immediate");
    const statements = statementsOf(database);
    const { changes } = statements.run(raiseMark(table), [resource, String(fence)]);
    if (Number(changes) === 1) return;
    const { mark } = Object(statements.get(readMark(table), [resource])) as { mark?: string };
    throw new StaleFenceError(resource, fence, mark === undefined ? undefined : BigInt(mark));
  } catch (error) {
    throw sqliteError(error);
  }
}

/** Makes the table, where it is missing. Safe to repeat. */
export function migrateSqliteFence(database: SqliteDatabase, options: FenceTable = {}): void {
  const sql = sqliteFenceMigration(options);
  checkDatabase(database);
  try {
    database.exec(sql);
  } catch (error) {
    throw sqliteError(error);
  }
}

/** The same as text, for a migration tool. */
export function sqliteFenceMigration(options: FenceTable = {}): string {
  return `create table if not exists ${quotedTable(options.table, '"')} (
  resource text not null primary key,
  fence integer not null check (typeof(fence) = 'integer')
) without rowid;
`;
}

/** Values are texts: some drivers take no bigint, and some make a number of it that cannot tell all fences apart. */
function raiseMark(table: string): string {
  return `insert into ${table} (resource, fence) values (?, cast(? as integer))
on conflict (resource) do update set fence = excluded.fence where fence <= excluded.fence`;
}

function readMark(table: string): string {
  return `select cast(fence as text) as mark from ${table} where resource = ?`;
}

interface Statements {
  run(sql: string, values: string[]): { readonly changes: number | bigint };
  get(sql: string, values: string[]): unknown;
}

function statementsOf(database: SqliteDatabase): Statements {
  if (isRunning(database)) return database;
  return {
    run: (sql, values) => database.prepare(sql).run(...values),
    get: (sql, values) => database.prepare(sql).get(...values),
  };
}

function isInTransaction(database: SqliteDatabase): boolean {
  const { inTransaction, isTransaction } = database as PreparingDatabase;
  const told = inTransaction ?? isTransaction;
  if (told !== undefined) return told;
  // Older versions of node:sqlite do not tell. A transaction does not begin inside another one.
  try {
    database.exec("begin");
  } catch {
    return true;
  }
  database.exec("rollback");
  return false;
}

/** A database that runs statements by itself. One with callbacks, as of the package sqlite3, does not tell of transactions. */
function isRunning(database: SqliteDatabase): database is RunningDatabase {
  const { run, get, inTransaction } = Object(database) as Record<string, unknown>;
  return typeof run === "function" && typeof get === "function" && typeof inTransaction === "boolean";
}

function checkDatabase(database: SqliteDatabase): void {
  const { exec, prepare, run, inTransaction, isTransaction } = Object(database) as Record<string, unknown>;
  const tells = typeof (inTransaction ?? isTransaction) === "boolean";
  const prepares = typeof prepare === "function" && (run === undefined || tells);
  if (typeof exec === "function" && (isRunning(database) || prepares)) return;
  throw invalid(
    "database must be a Database of better-sqlite3 or node-sqlite3-wasm, a DatabaseSync of node:sqlite, or have the same methods. Interfaces with callbacks or promises do not work.",
  );
}
