/** The options of `postgresStore`. */
import { checkBoolean, checkOptionNames, invalid } from "../../store/index.ts";
import { type CasStoreOptions, casOptionNames } from "../cas/index.ts";
import type { PostgresListener } from "./client.ts";
import { type TableNames, tableNames } from "./table.ts";

export const DEFAULT_TABLE = "holdfast_locks";

/** Options of `postgresStore`. */
export interface PostgresStoreOptions extends CasStoreOptions {
  /** The table, or schema and table with a dot between them. Default "holdfast_locks". */
  readonly table?: string;
  /** Whether to create the table and the routines at first use if they are missing. Default false. */
  readonly autoMigrate?: boolean;
  /**
   * How waiters are woken: by `LISTEN` in a session that this function opens and the store ends, or not at all (`false`). Without
   * `LISTEN` the store polls, in one query for all its waiters. Default: a connection of the pool, or `false` without a pool.
   */
  readonly listener?: false | (() => Promise<PostgresListener>);
}

export interface ResolvedOptions {
  readonly names: TableNames;
  readonly autoMigrate: boolean;
  readonly listener: PostgresStoreOptions["listener"];
  readonly shared: CasStoreOptions;
}

export function resolveOptions(options: PostgresStoreOptions): ResolvedOptions {
  checkOptionNames("postgresStore", options, {
    ...casOptionNames,
    table: true,
    autoMigrate: true,
    listener: true,
  });
  const { table = DEFAULT_TABLE, autoMigrate = false, listener, ...shared } = options;
  if (listener !== undefined && listener !== false && typeof listener !== "function") {
    throw invalid("listener must be false, or a function that resolves to a connected Client of pg.");
  }
  return {
    names: tableNames(table),
    autoMigrate: checkBoolean("autoMigrate", autoMigrate),
    listener,
    shared,
  };
}
