/** Checks the server and the table at first use, in one round trip. */
import { type Durability, HoldfastError } from "../../store/index.ts";
import type { Row, Send } from "./client.ts";
import { serverErrno, unavailable } from "./errors.ts";
import { migrate } from "./migration.ts";
import { bytes } from "./statements.ts";
import { inDatabase, type TableNames } from "./table.ts";

export interface FirstUseOptions {
  readonly send: Send;
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  readonly durability: Durability;
  readonly maxStatementBytes: number;
}

interface Facts {
  /** Undefined if neither the connection nor the option names one. */
  readonly database: string | undefined;
  readonly version: string;
  readonly packetBytes: number;
  /** Whether confirmed commits survive a crash of the machine. */
  readonly isDurable: boolean;
  readonly engine: string | undefined;
  readonly hasProcedures: boolean;
}

/** Resolves to the names with their database. */
export async function checkFirstUse(options: FirstUseOptions): Promise<TableNames> {
  const { send, autoMigrate } = options;
  const facts = await askFacts(send, options.names);
  if (facts.database === undefined) throw noDatabase();
  const names = inDatabase(options.names, facts.database);
  checkVersion(facts.version);
  checkDurability(facts, options.durability);
  checkPacket(facts, options.maxStatementBytes);
  if (facts.engine !== undefined && facts.engine !== "InnoDB") throw wrongEngine(names, facts.engine);
  if (facts.engine !== undefined && facts.hasProcedures) return names;
  if (!autoMigrate) throw notMigrated(names);
  await migrate(send, names);
  return names;
}

/** The user lacks rights on a table, a column or a database. */
const LACKS_RIGHTS: ReadonlySet<number> = new Set([1142, 1143, 1044]);
/** The session only reads. Transactions of the store override that. */
const SESSION_READS = 1792;

/**
 * Checks the right to remove old records, which would otherwise stay without a notice. `explain` needs the same rights as the statement.
 * Outages are passed on; other errors of `explain` do not matter here.
 */
export async function checkRemoval(send: Send, { rows }: TableNames): Promise<void> {
  try {
    await send(`explain format = traditional delete from ${rows} where lock_key = ''`);
  } catch (error) {
    const errno = serverErrno(error);
    if (errno === SESSION_READS) return;
    if (errno === undefined || errno in unavailable || LACKS_RIGHTS.has(errno)) throw error;
  }
}

async function askFacts(send: Send, names: TableNames): Promise<Facts> {
  const { database, tableName, swapName, sweepName } = names;
  const schema = database === undefined ? "database()" : `convert(${bytes(database)} using utf8mb4)`;
  const name = (text: string) => `convert(${bytes(text)} using utf8mb4)`;
  const [rows = []] = await send(`select cast(${schema} as binary), version(), @@max_allowed_packet,
  @@innodb_flush_log_at_trx_commit = 1 and (@@log_bin = 0 or @@sync_binlog = 1),
  (select engine from information_schema.tables where table_schema = ${schema} and table_name = ${name(tableName)}
    order by table_name = binary ${name(tableName)} desc limit 1),
  (select count(*) from information_schema.routines
    where routine_schema = ${schema} and routine_name in (${name(swapName)}, ${name(sweepName)}))
  limit 1`);
  const [place, version, packetBytes, isDurable, engine, procedures] = rows[0] as Row;
  return {
    database: place === null || place === undefined ? undefined : String(place),
    version: String(version),
    packetBytes: Number(packetBytes),
    isDurable: Number(isDurable) === 1,
    engine: engine === null || engine === undefined ? undefined : String(engine),
    hasProcedures: Number(procedures) === 2,
  };
}

function checkDurability({ isDurable }: Facts, durability: Durability): void {
  if (isDurable || durability === "ephemeral") return;
  throw new HoldfastError(
    "DURABILITY_UNAVAILABLE",
    `If its machine crashes, the server may lose confirmed commits, so the store is not "local". Set innodb_flush_log_at_trx_commit = 1 (and with a binary log sync_binlog = 1), or pass durability: "ephemeral".`,
  );
}

function checkPacket({ packetBytes }: Facts, maxStatementBytes: number): void {
  if (packetBytes >= maxStatementBytes) return;
  throw new HoldfastError(
    "STORE_FAILURE",
    `The server accepts statements of up to ${packetBytes} bytes, and this store may send ${maxStatementBytes}. Raise max_allowed_packet, or lower maxRecordBytes.`,
  );
}

function noDatabase(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The connection has no database. Name one in the options of the pool, or pass table as database.table.",
  );
}

function wrongEngine({ table }: TableNames, engine: string): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `The table ${table} uses the engine ${engine}, which has no transactions. Run: alter table ${table} engine = InnoDB.`,
  );
}

function notMigrated({ table }: TableNames): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    `The table ${table} or its procedures are missing, or this user has no rights on them. Run migrateMysql, or pass autoMigrate: true; docs/stores/mysql.md lists the rights.`,
  );
}

/** MySQL: the oldest version that passed the tests. MariaDB: the oldest with the needed features, by its documentation. */
const OLDEST = { MySQL: [8, 0, 33], MariaDB: [10, 6, 0] } as const;

/** Throws if the server is too old. */
export function checkVersion(version: string): void {
  const product = /mariadb/i.test(version) ? "MariaDB" : "MySQL";
  const oldest = OLDEST[product];
  const found = /^(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1).map(Number) ?? [0];
  const differs = oldest.findIndex((part, index) => part !== found[index]);
  if (differs === -1 || (found[differs] ?? 0) > (oldest[differs] ?? 0)) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `The server is ${product} ${version}, and this store needs ${product} ${oldest.join(".")} or newer. Upgrade it, or use another store.`,
  );
}
