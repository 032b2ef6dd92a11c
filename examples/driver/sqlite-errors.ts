/** What the errors of SQLite mean, in one place. They are told apart by code, never by text, which a new release may word anew. */
import { closeSync, openSync, readSync } from "node:fs";
import { type ErrorCode, HoldfastError, StoreUnavailableError } from "holdfast";
import type { SqliteClient } from "./sqlite-driver.ts";

type Meaning = readonly [code: ErrorCode, what: string];

const unavailable = (what: string): Meaning => ["STORE_UNAVAILABLE", what];
const failure = (what: string): Meaning => ["STORE_FAILURE", what];

const busy = unavailable("Other connections use the file. The store tries again.");
const unknown = unavailable("The request failed, and its result is unknown. The store tries again.");
const rights: Meaning = [
  "UNAUTHORIZED",
  "This connection may only read. Open it for writing, as a user who may write to the file and its folder.",
];
const damaged = failure(
  "The file is damaged. Stop all programs that use it, then restore it or move it away.",
);
const noDatabase = failure("The file is not one of SQLite. Choose another one.");
const noTable = failure(
  "The table locks is missing, or has other columns. Give locks a file of their own and a connection that may write. A new store then makes the table.",
);
const other = failure("The cause has the text of SQLite.");

/** By SQLite's result codes: their numbers and their names. All others are failures, which trying again does not mend. */
const meanings: readonly (readonly [number, string, Meaning])[] = [
  [3, "SQLITE_PERM", rights],
  [5, "SQLITE_BUSY", busy],
  [6, "SQLITE_LOCKED", busy],
  [7, "SQLITE_NOMEM", unavailable("There is not enough memory.")],
  [8, "SQLITE_READONLY", rights],
  [9, "SQLITE_INTERRUPT", unavailable("The application has interrupted it.")],
  [10, "SQLITE_IOERR", unavailable("The disk failed. Look at the log of the system.")],
  [11, "SQLITE_CORRUPT", damaged],
  [13, "SQLITE_FULL", unavailable("The disk is full. Free some space; the store then continues by itself.")],
  [14, "SQLITE_CANTOPEN", unavailable("The file or its journal cannot be opened.")],
  [15, "SQLITE_PROTOCOL", busy],
  [23, "SQLITE_AUTH", rights],
  [26, "SQLITE_NOTADB", noDatabase],
];

/** The error to throw in place of one that was caught. */
export function sqliteError(error: unknown, client: SqliteClient): unknown {
  const meaning = meaningOf(error, client);
  // A bug is no outage. Thrown as it is, a TypeError becomes a STORE_FAILURE, and nobody tries again.
  if (meaning === undefined) return error;
  const [code, what] = meaning;
  const message = `SQLite failed. ${what}`;
  return code === "STORE_UNAVAILABLE"
    ? new StoreUnavailableError(message, { cause: error })
    : new HoldfastError(code, message, { cause: error });
}

/** Undefined for an error that is not SQLite's. */
function meaningOf(error: unknown, client: SqliteClient): Meaning | undefined {
  // better-sqlite3 tells the name of a code, node:sqlite its number, and node-sqlite3-wasm neither.
  const { code, errcode, name } = Object(error) as { code?: unknown; errcode?: unknown; name?: unknown };
  // An extended code has the number of its kind in its last byte, and the name of its kind in front.
  if (typeof errcode === "number") return byCode(client, ([number]) => number === errcode % 256);
  if (typeof code === "string" && code.startsWith("SQLITE_")) {
    return byCode(client, ([, kind]) => code === kind || code.startsWith(`${kind}_`));
  }
  return name === "SQLite3Error" ? byAsking(client) : undefined;
}

function byCode(client: SqliteClient, isIt: (known: (typeof meanings)[number]) => boolean): Meaning {
  const meaning = meanings.find(isIt)?.[2];
  // SQLite has no code of its own for a table that is missing, so it is asked.
  return meaning ?? (hasTable(client) === false ? noTable : other);
}

/** Changes nothing, and is refused all the same where nothing may be changed. */
export const writeNothing = "delete from locks where false";

/**
 * What is wrong, where the client tells no code. Only what SQLite answers counts as proof. That it fails again proves nothing, as
 * others may have the file locked, and is taken for an outage.
 */
function byAsking(client: SqliteClient): Meaning {
  if (isOtherFile(client)) return noDatabase;
  if (answerTo(client, "pragma query_only") === 1) return rights;
  if (!works(client, "begin immediate")) return unknown;
  try {
    const checked = answerTo(client, "pragma quick_check(1)");
    if (checked !== undefined && checked !== "ok") return damaged;
    if (hasTable(client) === false) return noTable;
    // The file is sound, and locked by nobody else: then what is left is that this connection may not write. A connection that was
    // opened for reading can begin a transaction.
    return checked === "ok" && !works(client, writeNothing) ? rights : unknown;
  } finally {
    works(client, "rollback");
  }
}

/** Undefined where SQLite does not answer. */
function hasTable(client: SqliteClient): boolean | undefined {
  const columns = "'key', 'version', 'text', 'idle', 'keep_until_ms'";
  const count = `select count(*) from pragma_table_info('locks') where name in (${columns})`;
  const answer = answerTo(client, count);
  return answer === undefined ? undefined : answer === 5;
}

/**
 * Every file of SQLite begins with these bytes, unless it is empty. It is read only for clients that tell no code. Where SQLite locks files by POSIX, to close a
 * file would give up the locks of this process; node-sqlite3-wasm locks by folders.
 */
function isOtherFile(client: SqliteClient): boolean {
  const header = Buffer.from("SQLite format 3\0");
  try {
    const [main] = client.all("pragma database_list", []) as [{ readonly file: string }];
    const file = openSync(main.file, "r");
    try {
      const start = Buffer.alloc(header.length);
      return readSync(file, start) > 0 && !start.equals(header);
    } finally {
      closeSync(file);
    }
  } catch {
    // It is in memory, or gone.
    return false;
  }
}

/** The first value of the first row, or undefined where it fails. */
function answerTo(client: SqliteClient, sql: string): unknown {
  try {
    return Object.values(Object(client.all(sql, [])[0]))[0];
  } catch {
    return undefined;
  }
}

function works(client: SqliteClient, sql: string): boolean {
  try {
    client.exec(sql);
    return true;
  } catch {
    return false;
  }
}
