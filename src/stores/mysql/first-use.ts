/** What is checked before a store is used: once, in one round trip, so that a mistake is told instead of met later. */
import { type Durability, HoldfastError } from "../../store/index.ts";
import type { Row, Send } from "./client.ts";
import { serverErrno, unavailable } from "./errors.ts";
import { migrate } from "./migration.ts";
import { bytes } from "./statements.ts";
import { inDatabase, type TableNames } from "./table.ts";
import { checkVersion } from "./version.ts";

export interface FirstUseOptions {
  readonly send: Send;
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  readonly durability: Durability;
  /** The longest statement that the store may send. */
  readonly maxStatementBytes: number;
}

interface Facts {
  /** Undefined where the connection has none, and the names say none. */
  readonly database: string | undefined;
  readonly version: string;
  readonly packetBytes: number;
  /** Whether a commit that was answered survives a crash of the machine. */
  readonly isDurable: boolean;
  readonly engine: string | undefined;
  readonly hasProcedures: boolean;
}

/** Resolves when all is well, to the names with the database that they are in. */
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

/** What the server says to somebody without rights on a table, a column or a database. */
const LACKS_RIGHTS: ReadonlySet<number> = new Set([1142, 1143, 1044]);
/** What it says in a session that only reads. The transactions of the store say themselves that they write. */
const SESSION_READS = 1792;

/**
 * Asks for the rights to remove old records: nobody who asks for a lock would notice that they stay for ever. Explaining takes the same
 * rights as doing. Whatever else the server says to it is of no concern here. But an outage says nothing about rights, so it is told as
 * one, and they are asked for again.
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
