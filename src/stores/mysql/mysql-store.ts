import { checkInteger, type Durability, invalid, type Store } from "../../core/index.ts";
import { type CasStoreOptions, casStore } from "../cas/index.ts";
import { checkClient, type MysqlClient, sender } from "./client.ts";
import { mysqlDriver } from "./driver.ts";
import { DEFAULT_TABLE, tableNames } from "./table.ts";

export interface MysqlStoreOptions extends CasStoreOptions {
  /** The table, or database and table with a dot between them. Default "holdfast_locks". */
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

/** Which options there are, so that a misspelt one is told. */
const known: Readonly<Record<keyof MysqlStoreOptions, true>> = {
  table: true,
  autoMigrate: true,
  durability: true,
  maxRecordBytes: true,
  maxWaiters: true,
  maxFlights: true,
  cachedKeys: true,
  flightMs: true,
  giveUpMs: true,
  keepIdleMs: true,
  minPollMs: true,
  maxPollMs: true,
  clockDrift: true,
  clock: true,
  random: true,
};

const MIB = 1_048_576;
const DEFAULT_FLIGHT_MS = 5_000;

/**
 * A store in MySQL 8.0.4 or newer, or MariaDB 10.6 or newer, through the `mysql2/promise` pool that you have. Its table is made
 * by `migrateMysql`.
 *
 * @example
 * const locks = createLocks(mysqlStore(createPool("mysql://localhost/app")));
 */
export function mysqlStore(client: MysqlClient, options: MysqlStoreOptions = {}): Store {
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(known, name)) throw invalid(`${name} is not an option of mysqlStore.`);
  }
  const { table, autoMigrate = false, durability = "local", maxRecordBytes = MIB, ...shared } = options;
  if (typeof autoMigrate !== "boolean")
    throw invalid(`autoMigrate must be true or false, not ${autoMigrate}.`);
  if (durability !== "local" && durability !== "ephemeral") {
    throw invalid(`durability must be "local" or "ephemeral", not ${JSON.stringify(durability)}.`);
  }
  checkInteger("maxRecordBytes", maxRecordBytes, 4_096, 16 * MIB);
  const driver = mysqlDriver({
    send: sender(checkClient(client), shared.flightMs ?? DEFAULT_FLIGHT_MS),
    names: tableNames(table ?? DEFAULT_TABLE),
    autoMigrate,
    durability,
    maxRecordBytes,
  });
  return casStore(driver, shared);
}
