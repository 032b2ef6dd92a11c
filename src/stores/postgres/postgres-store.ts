import { systemClock } from "../../platform/index.ts";
import { checkBoolean, checkOptionNames, invalid, type Store } from "../../store/index.ts";
import { type CasStoreOptions, casDefaults, casOptionNames, casStore } from "../cas/index.ts";
import {
  type Access,
  accessTo,
  checkClient,
  type OpenListener,
  type PostgresClient,
  type PostgresListener,
  poolListener,
} from "./client.ts";
import { postgresDriver } from "./driver.ts";
import { DEFAULT_TABLE } from "./migration.ts";
import { tableNames } from "./table.ts";

/** Options of `postgresStore`. */
export interface PostgresStoreOptions extends CasStoreOptions {
  /** The table, or schema and table with a dot between them. Default "holdfast_locks". */
  readonly table?: string;
  /** Whether to make the table and the function at first use where they are missing. Default false. */
  readonly autoMigrate?: boolean;
  /**
   * How waiters are woken: by `LISTEN` in a session that this function opens and the store ends, or not at all (`false`); then
   * the store looks now and then, in one query for all its waiters. Default: a connection of the pool, or `false` where the
   * client is not a pool.
   */
  readonly listener?: false | (() => Promise<PostgresListener>);
}

/**
 * A store in PostgreSQL 12 or newer, through the pool or client that you have. Its table is made by `migratePostgres`.
 *
 * @example
 * const locks = createLocks(postgresStore(new Pool()));
 */
export function postgresStore(client: PostgresClient, options: PostgresStoreOptions = {}): Store {
  checkOptionNames("postgresStore", options, {
    ...casOptionNames,
    table: true,
    autoMigrate: true,
    listener: true,
  });
  const { table = DEFAULT_TABLE, autoMigrate = false, listener, ...shared } = options;
  const clock = options.clock ?? systemClock;
  const timeoutMs = shared.requestTimeoutMs ?? casDefaults.requestTimeoutMs;
  const access = accessTo(checkClient(client), { clock, timeoutMs });
  const driver = postgresDriver({
    access,
    names: tableNames(table),
    autoMigrate: checkBoolean("autoMigrate", autoMigrate),
    openListener: listenerOf(access, listener),
    clock,
  });
  return casStore(driver, shared);
}

function listenerOf(access: Access, listener: PostgresStoreOptions["listener"]): OpenListener | undefined {
  if (listener === undefined) return poolListener(access);
  if (listener === false) return undefined;
  if (typeof listener === "function") return listener;
  throw invalid("listener must be false, or a function that resolves to a connected Client of pg.");
}
