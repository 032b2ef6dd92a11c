/** What the errors of MySQL, MariaDB and mysql2 mean. Told apart by number and code, never by text. */
import { type ErrorCode, HoldfastError, isMistake, StoreUnavailableError } from "../../core/index.ts";

const LOST = "The connection to the server was lost; the pool makes another one.";
const READ_ONLY =
  "This server takes no writes, as a replica or during a failover. The pool has to reach the one that does.";
const BUSY = "Too many others are connected: raise the limit, or use smaller pools.";
const STOPPED =
  "The statement was stopped by an administrator or by a time limit. Whether it was made before is unknown.";
const TRANSIENT = "Others were in the way, and nothing was written. It is tried again.";
const FULL = "The server has no more room: free some on its disk.";
const MEMORY = "The server is out of memory: give it more, or let fewer use it.";
const CLUSTER = "This node of the cluster is not ready: wait until it is, or reach another.";

/** Answers of a server that cannot serve now, but may in a moment or elsewhere. */
export const unavailable: Readonly<Record<number, string>> = {
  1021: FULL,
  1036: READ_ONLY,
  1037: MEMORY,
  1038: MEMORY,
  1040: BUSY,
  1041: MEMORY,
  1047: CLUSTER,
  1053: "The server is being shut down. It is tried again.",
  1077: LOST,
  1079: LOST,
  1080: LOST,
  1081: LOST,
  1105: "The server, or a proxy in front of it, reports a passing fault. The cause has its words.",
  1114: FULL,
  1129: "The server refuses this host after too many broken connections: run flush hosts there.",
  1135: "The server cannot start another thread: give it more memory, or let fewer connect.",
  1152: LOST,
  1154: LOST,
  1155: LOST,
  1156: LOST,
  1157: LOST,
  1158: LOST,
  1159: LOST,
  1160: LOST,
  1161: LOST,
  1180: "The server could not commit. The cause has its words.",
  1184: LOST,
  1203: BUSY,
  1205: "Another transaction holds a row of the table for too long, and nothing was written. Look for who does.",
  1206: TRANSIENT,
  1213: TRANSIENT,
  1226: BUSY,
  1290: READ_ONLY,
  1317: STOPPED,
  1412: "The table is being changed. It is tried again.",
  1461: "The server has too many prepared statements: raise max_prepared_stmt_count, or look for who leaves them open.",
  1615: "The table is being changed. It is tried again.",
  1637: "The server has too many transactions at once: let fewer use it, or look for those that stay open.",
  1792: READ_ONLY,
  1836: READ_ONLY,
  1927: LOST,
  1969: STOPPED,
  2006: LOST,
  2013: LOST,
  3024: STOPPED,
  3032: "The server is offline for maintenance. It is tried again.",
  3100: CLUSTER,
  3101: "The cluster rejected the change because of another one, and nothing was written. It is tried again.",
  3168: CLUSTER,
  3572: TRANSIENT,
  4031: LOST,
  // ProxySQL's, where no server behind it can be reached.
  9001: LOST,
};

const RIGHTS = "The user lacks rights: docs/stores/mysql.md lists what it needs.";
const LOGIN = "The server does not let the user in: check the user, its host and its password.";

export const unauthorized: Readonly<Record<number, string>> = {
  1044: RIGHTS,
  1045: LOGIN,
  1130: "The server does not let this host in: the user has to be created for it.",
  1142: RIGHTS,
  1143: RIGHTS,
  1227: RIGHTS,
  1251: LOGIN,
  1370: RIGHTS,
  1419: "With a binary log, routines may be made by few: let an administrator run migrateMysql.",
  1524: LOGIN,
  1698: LOGIN,
  1820: "The password of the user has expired: set another one.",
  1862: "The password of the user has expired: set another one.",
  3118: "The account of the user is locked: let an administrator unlock it.",
  4151: "The account of the user is locked: let an administrator unlock it.",
};

const MIGRATE =
  "The table or the procedures of the store are missing: run migrateMysql, or pass autoMigrate: true.";
const OTHER_TABLE =
  "The table is another one than migrateMysql makes, so it is somebody else's: choose another name.";

export const failures: Readonly<Record<number, string>> = {
  1046: "The connection has no database: name one, or pass table as database.table.",
  1049: "The database does not exist: create it.",
  1054: OTHER_TABLE,
  1064: "The server does not understand the statement: docs/stores/mysql.md says which servers do.",
  1136: OTHER_TABLE,
  1146: MIGRATE,
  1153: "The request is larger than max_allowed_packet: raise it on the server.",
  1304: "The procedure exists already: remove it, and run migrateMysql again.",
  1305: MIGRATE,
  1318: "The procedure is another one than migrateMysql makes: remove it, and run that again.",
  1364: OTHER_TABLE,
  1406: OTHER_TABLE,
  1568: "The connection is in a transaction of somebody else, or has autocommit off. Give the store a pool, or a connection of its own.",
  1644: "The session has a clock of its own: somebody ran set timestamp on the connection. Run set timestamp = default, or give the store a pool of its own.",
  1665: "With binlog_format = statement this cannot be replicated: set it to row or mixed, which newer servers do by themselves.",
  3159: "The server demands an encrypted connection: give the client ssl.",
};

/** What mysql2 and Node come up with. All other codes of theirs are trouble on the way to the server. */
const clientFailures: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  AUTH_SWITCH_PLUGIN_ERROR: [
    "UNAUTHORIZED",
    "It cannot log in as the server wants it to: give the user another way to, or the client authPlugins.",
  ],
  MYSQL_CLEAR_PASSWORD_NOT_ENABLED: [
    "UNAUTHORIZED",
    "The server wants the password as it is: give the client ssl and enableCleartextPlugin, or the user another way to log in.",
  ],
  HANDSHAKE_NO_SSL_SUPPORT: [
    "STORE_FAILURE",
    "The server takes no encrypted connections: set them up there, or leave out ssl where the network is your own.",
  ],
  POOL_NOEXIST: [
    "STORE_FAILURE",
    "The pool cluster has no pool of that name: add one, or ask of() for another.",
  ],
};

/** Where nothing was tried yet that the server would have refused. */
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
  return answered("STORE_FAILURE", errno, failures[errno] ?? "The cause has the server's words.", error);
}

function answered(code: ErrorCode, errno: number, what: string, cause: unknown): HoldfastError {
  return new HoldfastError(code, `MySQL answered ${errno}. ${what}`, { cause });
}

/** The number of an error that the server answered, or undefined for one of the client's own. */
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
    const what = "The MySQL client failed. The cause has its words.";
    return new HoldfastError("STORE_FAILURE", what, { cause: error });
  }
  return new StoreUnavailableError("MySQL is unavailable: the client cannot reach it, or got no answer.", {
    cause: error,
  });
}
