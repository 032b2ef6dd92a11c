/** The names of the store's objects in the database, quoted for statements. */
import { invalid } from "../../store/index.ts";

export interface TableNames {
  /** For the statement that creates the table. */
  readonly table: string;
  /**
   * For all other statements. A temporary table hides a table of the same name in its session, but has no partitions: a statement that
   * names the partition fails in such a session, instead of granting locks that no other session sees.
   */
  readonly rows: string;
  readonly swap: string;
  readonly sweep: string;
  /** Unquoted. The database is undefined if the connection decides. */
  readonly database: string | undefined;
  readonly tableName: string;
  readonly swapName: string;
  readonly sweepName: string;
}

/** Names may have 64 characters, and the procedures' names are longer than the table's. */
const MAX_TABLE = 50;
const MAX_DATABASE = 64;

/** From `name` or `database.name`. */
export function tableNames(given: string): TableNames {
  const parts = typeof given === "string" ? given.split(".") : [];
  const [database, tableName] = parts.length === 2 ? parts : [undefined, parts[0]];
  const isDatabase = database === undefined || isName(database, MAX_DATABASE);
  if (parts.length > 2 || !isDatabase || !isName(tableName, MAX_TABLE)) {
    throw invalid(
      `table must be 1 to ${MAX_TABLE} letters, digits, underscores, dollars or dashes, with or without a database and a dot before them, not ${JSON.stringify(given)}.`,
    );
  }
  return namesIn(database, tableName);
}

/** The same names in a database. Without a database, `use` on a pooled connection would lead to another database's table. */
export function inDatabase({ tableName }: TableNames, database: string): TableNames {
  return namesIn(database, tableName);
}

/** The only partition of the table. */
export const PARTITION = "holdfast";

function namesIn(database: string | undefined, tableName: string): TableNames {
  const swapName = `${tableName}_swap_v1`;
  const sweepName = `${tableName}_sweep_v1`;
  const before = database === undefined ? "" : `${quoted(database)}.`;
  return {
    table: `${before}${quoted(tableName)}`,
    rows: `${before}${quoted(tableName)} partition (${PARTITION})`,
    swap: `${before}${quoted(swapName)}`,
    sweep: `${before}${quoted(sweepName)}`,
    database,
    tableName,
    swapName,
    sweepName,
  };
}

function quoted(name: string): string {
  return `\`${name.replaceAll("`", "``")}\``;
}

function isName(name: string | undefined, max: number): name is string {
  return name !== undefined && name.length <= max && /^[\w$-]+$/.test(name);
}
