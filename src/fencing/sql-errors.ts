/**
 * What the errors of databases mean to a guard. It runs inside somebody else's transaction, so it repeats nothing: whatever it
 * throws is to end that transaction, and `retryable` says whether the whole of it may be run again. The driver's error is the
 * cause. Told apart by code, never by text.
 */
import { type ErrorMeaning, HoldfastError, invalid, isMistake, meaning, storeError } from "../store/index.ts";

const again = meaning.unavailable(
  "Another transaction conflicted. Roll back, and run the whole transaction again.",
);
const away = meaning.unavailable(
  "The server is unreachable or accepts no writes. Run the whole transaction again on another connection.",
);
const rights = meaning.unauthorized(
  "The user lacks rights. Grant it select, insert and update on the table of fences.",
);
const missing = (migrate: string) =>
  meaning.failure(`The table of fences is missing, or has other columns. Run ${migrate} first.`);
const unknown = meaning.failure("The cause has its text.");

function failed(
  database: string,
  said: string | undefined,
  { code, what }: ErrorMeaning,
  cause: unknown,
): HoldfastError {
  const answered = said === undefined ? "" : ` It answered ${said}.`;
  return storeError(code, `${database} did not store the fence.${answered} ${what}`, { cause });
}

function clientMeaning(error: unknown): ErrorMeaning {
  return isMistake(error) ? unknown : away;
}

/** By SQLSTATE, or by its first two characters. */
const postgresMeanings: Readonly<Record<string, ErrorMeaning>> = {
  "40": again,
  "55P03": again,
  "08": away,
  "25006": away,
  "53": away,
  "57": away,
  "58": away,
  "42501": rights,
  "42P01": missing("migratePostgresFence"),
  "42703": missing("migratePostgresFence"),
  "42P10": missing("migratePostgresFence"),
  "3F": missing("migratePostgresFence"),
};

/** What PostgreSQL answers to what needs a transaction where there is none. */
const NO_TRANSACTION = "25P01";

export function postgresError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const { code } = Object(error) as { code?: unknown };
  // The client's own codes have no digit (EPIPE).
  if (typeof code !== "string" || !/^(?=.*\d)[0-9A-Z]{5}$/.test(code)) {
    return failed("PostgreSQL", undefined, clientMeaning(error), error);
  }
  if (code === NO_TRANSACTION) return noTransaction("client", "begin");
  const known = postgresMeanings[code] ?? postgresMeanings[code.slice(0, 2)];
  return failed("PostgreSQL", code, known ?? unknown, error);
}

/**
 * 1205 is a lock that was waited for in vain, and 1213 a circle of waiting that was broken here. 1020 is MariaDB's
 * innodb_snapshot_isolation: the mark has moved since this transaction's snapshot.
 */
const mysqlAgain = new Set([1020, 1205, 1206, 1213, 3101, 3572]);
const mysqlAway = new Set([
  1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1290, 1317, 1836, 1927, 1969, 2006, 2013, 3024, 4031,
]);
const mysqlRights = new Set([1044, 1142, 1143, 1227]);
const mysqlMissing = new Set([1046, 1049, 1054, 1136, 1146]);

export function mysqlError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const { errno } = Object(error) as { errno?: unknown };
  // The system's own errors have negative numbers.
  if (typeof errno !== "number" || errno <= 0) return failed("MySQL", undefined, clientMeaning(error), error);
  return failed("MySQL", String(errno), mysqlMeaning(errno), error);
}

function mysqlMeaning(errno: number): ErrorMeaning {
  if (mysqlAgain.has(errno)) return again;
  if (mysqlAway.has(errno)) return away;
  if (mysqlRights.has(errno)) return rights;
  return mysqlMissing.has(errno) ? missing("migrateMysqlFence") : unknown;
}

const SQLITE_BUSY = 5;
const SQLITE_LOCKED = 6;

/** better-sqlite3 tells the name of a code, node:sqlite its number, and node-sqlite3-wasm neither. */
export function sqliteError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const { code, errcode } = Object(error) as { code?: unknown; errcode?: unknown };
  // The number of an extended code has that of its kind in the last byte.
  const number = typeof errcode === "number" ? errcode % 256 : undefined;
  const isBusy = number === SQLITE_BUSY || number === SQLITE_LOCKED;
  const isNamedBusy = typeof code === "string" && /^SQLITE_(BUSY|LOCKED)/.test(code);
  if (isBusy || isNamedBusy) return failed("SQLite", String(code), again, error);
  const what =
    "The cause has its text. If the database is locked, use begin immediate. If the table is missing, run migrateSqliteFence first.";
  return failed("SQLite", undefined, { ...unknown, what }, error);
}

/** Without one, the mark would be unlocked before the write that it guards, and a newer write could come in between. */
export function noTransaction(name: string, begin: string): HoldfastError {
  return invalid(
    `${name} must be inside a transaction, because the fence guards the writes committed with it. Run "${begin}" before the write, and "commit" after it.`,
  );
}
