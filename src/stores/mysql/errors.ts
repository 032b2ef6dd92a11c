/** The meanings of errors of MySQL, MariaDB and mysql2, by their numbers and codes. */
import { type ErrorCode, HoldfastError, isMistake, StoreUnavailableError } from "../../store/index.ts";

const LOST = "The connection to the server was lost. The pool makes a new connection.";
const READ_ONLY =
  "This server accepts no writes: it is a replica, or a failover is going on. Point the pool at the primary.";
const BUSY = "The server has too many connections. Raise max_connections, or use smaller pools.";
const STOPPED = "An administrator or a time limit stopped the statement. Its result is unknown.";
const TRANSIENT = "Other transactions held the rows, and nothing was written. The store tries again.";
const FULL = "The server's disk is full. Free some space.";
const MEMORY = "The server is out of memory. Add memory, or reduce its load.";
const CLUSTER = "This node of the cluster is not ready. Wait, or connect to another node.";

/** The server cannot serve now, but may in a moment, or another server may. */
export const unavailable: Readonly<Record<number, string>> = {
  1021: FULL,
  1036: READ_ONLY,
  1037: MEMORY,
  1038: MEMORY,
  1040: BUSY,
  1041: MEMORY,
  1047: CLUSTER,
  1053: "The server is shutting down. The store tries again.",
  1077: LOST,
  1079: LOST,
  1080: LOST,
  1081: LOST,
  1105: "The server, or a proxy before it, reports a transient fault. The cause has its text.",
  1114: FULL,
  1129: "The server refuses this host after too many broken connections. Run flush hosts on the server.",
  1135: "The server cannot start another thread. Add memory, or reduce the number of connections.",
  1152: LOST,
  1154: LOST,
  1155: LOST,
  1156: LOST,
  1157: LOST,
  1158: LOST,
  1159: LOST,
  1160: LOST,
  1161: LOST,
  1180: "The server could not commit. The cause has its text.",
  1184: LOST,
  1203: BUSY,
  1205: "Another transaction holds a row of the table for too long, and nothing was written. Find and end that transaction.",
  1206: TRANSIENT,
  1213: TRANSIENT,
  1226: BUSY,
  1290: READ_ONLY,
  1317: STOPPED,
  1412: "The table is being altered. The store tries again.",
  1461: "The server has too many prepared statements. Raise max_prepared_stmt_count, or find the client that leaves them open.",
  1615: "The table is being altered. The store tries again.",
  1637: "The server has too many transactions. Reduce its load, or find transactions that stay open.",
  1792: READ_ONLY,
  1836: READ_ONLY,
  1927: LOST,
  1969: STOPPED,
  2006: LOST,
  2013: LOST,
  3024: STOPPED,
  3032: "The server is offline for maintenance. The store tries again.",
  3100: CLUSTER,
  3101: "The cluster rejected the change because of a conflict, and nothing was written. The store tries again.",
  3168: CLUSTER,
  3572: TRANSIENT,
  4031: LOST,
  // ProxySQL, if it reaches no server.
  9001: LOST,
};

const RIGHTS = "The user lacks rights. docs/stores/mysql.md lists the rights to grant.";
const LOGIN = "The server refuses the login. Check the user, its host and its password.";

export const unauthorized: Readonly<Record<number, string>> = {
  1044: RIGHTS,
  1045: LOGIN,
  1130: "The server refuses this host. Create the user for this host.",
  1142: RIGHTS,
  1143: RIGHTS,
  1227: RIGHTS,
  1251: LOGIN,
  1370: RIGHTS,
  1419: "With a binary log, only privileged users may create routines. Let an administrator run migrateMysql.",
  1524: LOGIN,
  1698: LOGIN,
  1820: "The password of the user has expired. Set a new password.",
  1862: "The password of the user has expired. Set a new password.",
  3118: "The account of the user is locked. Let an administrator unlock it.",
  4151: "The account of the user is locked. Let an administrator unlock it.",
};

const MIGRATE =
  "The table or the procedures of the store are missing. Run migrateMysql, or pass autoMigrate: true.";
const OTHER_TABLE = "The table is not one that migrateMysql made. Choose another name.";

const LOCKED =
  "The session has lock tables of the application, or a global read lock. Run unlock tables before a connection goes back to the pool, or give the store a pool of its own.";

export const failures: Readonly<Record<number, string>> = {
  1046: "The connection has no database. Name one, or pass table as database.table.",
  1049: "The database does not exist. Create it.",
  1054: OTHER_TABLE,
  1064: "The server does not understand the statement. docs/stores/mysql.md lists the servers that work.",
  1099: LOCKED,
  1100: LOCKED,
  1136: OTHER_TABLE,
  1146: MIGRATE,
  1153: "The request is larger than max_allowed_packet. Raise that setting on the server.",
  1223: LOCKED,
  1304: "The procedure exists already. Drop it, and run migrateMysql again.",
  1305: MIGRATE,
  1318: "The procedure is not one that migrateMysql made. Drop it, and run migrateMysql again.",
  1364: OTHER_TABLE,
  1406: OTHER_TABLE,
  1568: "The connection is in a transaction of the application, or has autocommit off. Give the store a pool, or a connection of its own.",
  1644: "The session has a fixed clock, because set timestamp ran on the connection. Run set timestamp = default, or give the store a pool of its own.",
  1665: "The change cannot be replicated with binlog_format = statement. Set it to row or mixed, the default of newer servers.",
  1747: "The session has a temporary table of the same name, or the table is not one that migrateMysql made. Choose another name for either.",
  3159: "The server requires an encrypted connection. Set ssl in the client's options.",
};

/** Errors of mysql2. All its other codes are trouble on the way to the server. */
const clientFailures: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  AUTH_SWITCH_PLUGIN_ERROR: [
    "UNAUTHORIZED",
    "The client does not support the user's authentication plugin. Change the plugin of the user, or set authPlugins in the client's options.",
  ],
  MYSQL_CLEAR_PASSWORD_NOT_ENABLED: [
    "UNAUTHORIZED",
    "The server asks for the password in clear text. Set ssl and enableCleartextPlugin in the client's options, or change the plugin of the user.",
  ],
  HANDSHAKE_NO_SSL_SUPPORT: [
    "STORE_FAILURE",
    "The server accepts no encrypted connections. Set up TLS there, or omit ssl on a network that you trust.",
  ],
  POOL_NOEXIST: [
    "STORE_FAILURE",
    "The pool cluster has no pool of that name. Add a pool, or pass another pattern to of().",
  ],
};

export function readOnlyError(): StoreUnavailableError {
  return new StoreUnavailableError(`MySQL is unavailable: its read_only is on. ${READ_ONLY}`);
}

export function mapError(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  const errno = serverErrno(error);
  if (errno === undefined) return clientError(error);
  const outage = unavailable[errno];
  if (outage !== undefined) {
    const what = `MySQL is unavailable: it answered ${errno}. ${outage}`;
    return new StoreUnavailableError(what, { cause: error });
  }
  const denied = unauthorized[errno];
  if (denied !== undefined) return answered("UNAUTHORIZED", errno, denied, error);
  return answered("STORE_FAILURE", errno, failures[errno] ?? "The cause has the server's text.", error);
}

function answered(code: ErrorCode, errno: number, what: string, cause: unknown): HoldfastError {
  return new HoldfastError(code, `MySQL answered ${errno}. ${what}`, { cause });
}

/** Undefined for errors of the client. */
export function serverErrno(error: unknown): number | undefined {
  if (error instanceof HoldfastError) return serverErrno(error.cause);
  const { errno } = Object(error) as { errno?: unknown };
  // The system's own errors have negative numbers.
  return typeof errno === "number" && errno > 0 ? errno : undefined;
}

function clientError(error: unknown): HoldfastError {
  const { code } = Object(error) as { code?: unknown };
  const known = clientFailures[String(code)];
  if (known !== undefined) {
    const [as, what] = known;
    return new HoldfastError(as, `The MySQL client failed with ${code}. ${what}`, { cause: error });
  }
  if (isMistake(error)) {
    const what = "The MySQL client failed. The cause has its text.";
    return new HoldfastError("STORE_FAILURE", what, { cause: error });
  }
  return new StoreUnavailableError("MySQL is unavailable: the client cannot reach it, or got no answer.", {
    cause: error,
  });
}

export function wrongClient(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The client does not answer like a Pool or Connection of mysql2/promise. Pass one of these.",
  );
}
