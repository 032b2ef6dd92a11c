/** The options of `mysqlStore`. */
import {
  checkBoolean,
  checkChoice,
  checkInteger,
  checkOptionNames,
  type Durability,
} from "../../store/index.ts";
import { type CasStoreOptions, casOptionNames } from "../cas/index.ts";
import { type TableNames, tableNames } from "./table.ts";

export const DEFAULT_TABLE = "holdfast_locks";
const MIB = 1_048_576;

/** Options of `mysqlStore`. */
export interface MysqlStoreOptions extends CasStoreOptions {
  /**
   * The table, or database and table with a dot between them: letters, digits, "_", "$" and "-", at most 50 for the table. Default
   * "holdfast_locks".
   */
  readonly table?: string;
  /** Whether to create the table and the procedures at first use if they are missing. Default false. */
  readonly autoMigrate?: boolean;
  /**
   * "local" if confirmed commits survive a crash of the server's machine, which is checked at first use; otherwise "ephemeral". Default
   * "local".
   */
  readonly durability?: Extract<Durability, "local" | "ephemeral">;
  /** The largest record, in bytes. 4,096 to 16,777,216. Default 1,048,576, for about 4,000 waiters. */
  readonly maxRecordBytes?: number;
}

export interface ResolvedOptions {
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  readonly durability: Durability;
  readonly maxRecordBytes: number;
  readonly shared: CasStoreOptions;
}

export function resolveOptions(options: MysqlStoreOptions): ResolvedOptions {
  checkOptionNames("mysqlStore", options, {
    ...casOptionNames,
    table: true,
    autoMigrate: true,
    durability: true,
    maxRecordBytes: true,
  });
  const { table, autoMigrate = false, durability = "local", maxRecordBytes = MIB, ...shared } = options;
  return {
    names: tableNames(table ?? DEFAULT_TABLE),
    autoMigrate: checkBoolean("autoMigrate", autoMigrate),
    durability: checkChoice("durability", durability, ["local", "ephemeral"]),
    maxRecordBytes: checkInteger("maxRecordBytes", maxRecordBytes, 4_096, 16 * MIB),
    shared,
  };
}
