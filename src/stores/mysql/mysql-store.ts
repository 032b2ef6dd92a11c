import {
  checkBoolean,
  checkChoice,
  checkInteger,
  checkOptionNames,
  type Durability,
  type Store,
} from "../../store/index.ts";
import { type CasStoreOptions, casDefaults, casOptionNames, casStore } from "../cas/index.ts";
import { checkClient, type MysqlClient, sender } from "./client.ts";
import { mysqlDriver } from "./driver.ts";
import { DEFAULT_TABLE, tableNames } from "./table.ts";

/** Options of `mysqlStore`. */
export interface MysqlStoreOptions extends CasStoreOptions {
  /**
   * The table, or database and table with a dot between them: letters, digits, "_", "$" and "-", at most 50 for the table. Default
   * "holdfast_locks".
   */
  readonly table?: string;
  /** Whether to make the table and the procedures at first use where they are missing. Default false. */
  readonly autoMigrate?: boolean;
  /**
   * What the server is set up for: "local" if a commit that it has answered survives a crash of its machine, which is checked
   * at first use, and "ephemeral" if not. Default "local".
   */
  readonly durability?: Extract<Durability, "local" | "ephemeral">;
  /** How large one record may get, in bytes. 4,096 to 16,777,216. Default 1,048,576, which is some 4,000 waiters. */
  readonly maxRecordBytes?: number;
}

const MIB = 1_048_576;

/**
 * A store in MySQL 8.0.33 or newer, or MariaDB 10.6 or newer, through the `mysql2/promise` pool that you have. Its table is made
 * by `migrateMysql`.
 *
 * @example
 * const locks = createLocks(mysqlStore(createPool("mysql://localhost/app")));
 */
export function mysqlStore(client: MysqlClient, options: MysqlStoreOptions = {}): Store {
  checkOptionNames("mysqlStore", options, {
    ...casOptionNames,
    table: true,
    autoMigrate: true,
    durability: true,
    maxRecordBytes: true,
  });
  const { table, autoMigrate = false, durability = "local", maxRecordBytes = MIB, ...shared } = options;
  const driver = mysqlDriver({
    send: sender(checkClient(client), shared.requestTimeoutMs ?? casDefaults.requestTimeoutMs),
    names: tableNames(table ?? DEFAULT_TABLE),
    autoMigrate: checkBoolean("autoMigrate", autoMigrate),
    durability: checkChoice("durability", durability, ["local", "ephemeral"]),
    maxRecordBytes: checkInteger("maxRecordBytes", maxRecordBytes, 4_096, 16 * MIB),
  });
  return casStore(driver, shared);
}
