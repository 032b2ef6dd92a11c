/** Creates the table and the procedures of the store. */
import { checkOptionNames, HoldfastError } from "../../store/index.ts";
import { checkClient, type MysqlClient, type Send, sender } from "./client.ts";
import { readOnlyError, serverErrno } from "./errors.ts";
import { DEFAULT_TABLE } from "./options.ts";
import { createSwap, createSweep, IS_READ_ONLY } from "./procedures.ts";
import { checkVersion } from "./readiness.ts";
import { PARTITION, type TableNames, tableNames } from "./table.ts";

/** Options of `migrateMysql`. */
export interface MysqlMigrationOptions {
  /**
   * The table, or database and table with a dot between them: letters, digits, "_", "$" and "-", at most 50 for the table. Default
   * "holdfast_locks".
   */
  readonly table?: string;
}

/** A new table may have to wait for other transactions. */
const TIMEOUT_MS = 60_000;

/**
 * Creates the table and the procedures if they are missing. Safe to repeat, and to run from several processes at the same time.
 *
 * @example
 * await migrateMysql(pool);
 */
export async function migrateMysql(client: MysqlClient, options: MysqlMigrationOptions = {}): Promise<void> {
  checkOptionNames("migrateMysql", options, { table: true });
  const names = tableNames(options.table ?? DEFAULT_TABLE);
  await migrate(sender(checkClient(client), TIMEOUT_MS), names);
}

/**
 * An old server would create the table and fail at the procedures, so the version is checked first. Privileged users can write to a
 * replica, which would then diverge.
 */
export async function migrate(send: Send, names: TableNames): Promise<void> {
  const [rows = []] = await send(
    `select version(), ${IS_READ_ONLY}, find_in_set('ORACLE', @@sql_mode) > 0 limit 1`,
  );
  const [version, isReadOnly, isLikeOracle] = rows[0] ?? [];
  checkVersion(String(version));
  if (Number(isLikeOracle) !== 0) throw likeOracle();
  if (Number(isReadOnly) !== 0) throw readOnlyError();
  await send(createTable(names));
  // Another program's table fails here, before procedures are created for it.
  await unless(CANNOT_TELL, send(`select ${COLUMNS} from ${names.rows} limit 0`));
  // Not every server knows `if not exists` for a procedure.
  for (const procedure of [createSwap(names), createSweep(names)])
    await unless(PROCEDURE_EXISTS, send(procedure));
}

/** In this mode procedures have another syntax, and they keep the mode of their creation. */
function likeOracle(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The session has sql_mode = oracle, in which the procedures of the store cannot be made. Run migrateMysql over a connection that has run set sql_mode = ''. The store itself works in that mode.",
  );
}

/** The user may not read, or a proxy sends reads to a replica that has no such table yet. */
const CANNOT_TELL: readonly number[] = [1142, 1143, 1146];
const PROCEDURE_EXISTS: readonly number[] = [1304];

/** Passes over these answers of the server. */
async function unless(errnos: readonly number[], sent: Promise<unknown>): Promise<void> {
  try {
    await sent;
  } catch (error) {
    if (!errnos.includes(serverErrno(error) ?? 0)) throw error;
  }
}

const COLUMNS = "lock_key, version, record, idle, keep_until_ms, keep_until_second";

/**
 * Keys are bytes, so no collation makes two keys equal, and their order is that of `list`. The sweep has an index of seconds, because
 * every renewal would write an index of milliseconds.
 */
function createTable({ table }: TableNames): string {
  return `
create table if not exists ${table} (
  lock_key varbinary(512) not null,
  version binary(16) not null,
  record longtext character set utf8mb4 collate utf8mb4_bin not null,
  idle tinyint not null,
  keep_until_ms bigint not null,
  keep_until_second bigint not null,
  primary key (lock_key),
  key keep_until (keep_until_second)
) engine = InnoDB row_format = dynamic comment = 'Locks of Holdfast, record format 1'
partition by key (lock_key) (partition ${PARTITION})`;
}
