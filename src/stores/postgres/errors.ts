/** The meanings of errors of PostgreSQL and its clients, by their codes. */
import {
  type ErrorMeaning,
  HoldfastError,
  isMistake,
  meaning,
  StoreUnavailableError,
  storeError,
} from "../../store/index.ts";

const { unavailable, unauthorized, failure } = meaning;

const migrate = "Run migratePostgres(client, { table }), or pass autoMigrate: true.";

/** By SQLSTATE, or by its first two characters, which are its class. */
export const meanings: Readonly<Record<string, ErrorMeaning>> = {
  "08": unavailable("The connection failed. The store tries again."),
  "25006": unavailable(
    "The server accepts no writes: it is a replica, as after a failover, or is read-only. Point the client at the primary.",
  ),
  "25P02": failure("The client is inside a failed transaction. Pass a client that runs no transaction."),
  "25P03": unavailable("A time limit of the server ended the session. The store tries again."),
  "25P04": unavailable("A time limit of the server ended the session. The store tries again."),
  "25001": failure("The client is inside a transaction. Pass a client that runs no transaction."),
  "26000": unavailable("A pooler replaced the session. The store tries again."),
  "28": unauthorized("The server refuses the login. Check the user, the password and pg_hba.conf."),
  "3D": failure("The database does not exist. Create it, or name another one in the client's options."),
  "3F": failure(
    "The schema in the option table is missing, or the user lacks usage on it. Create it, or grant the rights in docs/stores/postgres.md.",
  ),
  "40": unavailable("The transaction was rolled back because of a conflict. The store tries again."),
  "42501": unauthorized(
    "The user lacks rights on the schema, the table or its function, which the cause names. docs/stores/postgres.md lists the rights to grant.",
  ),
  "42P01": failure(`The table is missing. ${migrate}`),
  "42703": failure("The table has other columns than a table of the store. Choose another name."),
  "42883": failure(`The procedure or the function of the store is missing. ${migrate}`),
  "42804": failure("The table has columns of other types than a table of the store. Choose another name."),
  "53": unavailable(
    "The server lacks connections, memory or disk space. Use a smaller pool, or add the missing resource.",
  ),
  "54": unavailable(
    "A limit of the server is reached, such as its notification queue. End the session that listens inside a long transaction.",
  ),
  "55P03": unavailable(
    "A row stayed locked for lock_timeout. The store tries again; let no other program lock the table.",
  ),
  "57014": unavailable(
    "The statement was cancelled, for instance by statement_timeout. Set that to more than a second.",
  ),
  "57": unavailable("The server is starting or stopping, or has ended the session. The store tries again."),
  "58": unavailable("The operating system of the server failed. Look at the server's log."),
};

/** Raised by the procedure in a session with other settings. */
export const WRONG_ENCODING = "U0002";
export const WRONG_ISOLATION = "U0003";

/** Raised by the store's own procedure, because of the session that it runs in. */
const refusals: Readonly<Record<string, (cause: unknown) => HoldfastError>> = {
  // Raised by its rollback.
  "2D000": inTransaction,
  [WRONG_ENCODING]: wrongEncoding,
  [WRONG_ISOLATION]: wrongIsolation,
};

export function mapError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const state = sqlState(error);
  if (state === undefined) return clientError(error);
  const refusal = refusals[state]?.(error);
  if (refusal !== undefined) return refusal;
  const { code, what } =
    meanings[state] ?? meanings[state.slice(0, 2)] ?? failure("The cause has the server's text.");
  return storeError(code, `PostgreSQL answered ${state}. ${what}`, { cause: error });
}

function clientError(cause: unknown): HoldfastError {
  if (isMistake(cause)) {
    return new HoldfastError("STORE_FAILURE", "The PostgreSQL client failed. The cause has its text.", {
      cause,
    });
  }
  const what =
    "PostgreSQL is unavailable: the client cannot reach it, or lost the connection. Check that it runs, and its address.";
  return new StoreUnavailableError(what, { cause });
}

/** Query builders wrap the server's error in errors of their own. This many are unwrapped. */
const WRAPPINGS = 4;

/** Undefined for errors of the client. Their codes may have five letters (EPIPE), but codes of the server have a digit. */
export function sqlState(error: unknown): string | undefined {
  let at = error;
  for (let depth = 0; depth <= WRAPPINGS && at instanceof Error; depth++) {
    const { code } = at as { code?: unknown };
    if (typeof code === "string" && /^(?=.*\d)[0-9A-Z]{5}$/.test(code)) return code;
    at = at.cause;
  }
  return undefined;
}

export function wrongEncoding(cause?: unknown): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The client_encoding of the PostgreSQL connection is not UTF8, so the store's keys would become other keys. Leave that setting alone on connections of the pool, or give the store a pool of its own.",
    { cause },
  );
}

export function wrongIsolation(cause?: unknown): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    'Transactions of the PostgreSQL connection are not "read committed", so the store cannot see concurrent changes. Set default_transaction_isolation to "read committed" for its user, and do not set it on connections of the pool.',
    { cause },
  );
}

export function inTransaction(cause?: unknown): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The PostgreSQL connection is inside a transaction of the application. A grant in it would be invisible to others, and lost with a rollback. End each transaction before its connection goes back to the pool, or give the store a pool of its own.",
    { cause },
  );
}
