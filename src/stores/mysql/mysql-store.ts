import type { Store } from "../../store/index.ts";
import { casDefaults, casStore } from "../cas/index.ts";
import { checkClient, type MysqlClient, sender } from "./client.ts";
import { mysqlDriver } from "./driver.ts";
import { type MysqlStoreOptions, resolveOptions } from "./options.ts";

/**
 * A store in MySQL 8.0.33 or newer, or MariaDB 10.6 or newer, through the application's `mysql2/promise` pool. `migrateMysql` creates its
 * table.
 *
 * @example
 * const locks = createLocks(mysqlStore(createPool("mysql://localhost/app")));
 */
export function mysqlStore(client: MysqlClient, options: MysqlStoreOptions = {}): Store {
  checkClient(client);
  const { shared, ...settings } = resolveOptions(options);
  const send = sender(client, shared.requestTimeoutMs ?? casDefaults.requestTimeoutMs);
  return casStore(mysqlDriver({ ...settings, send }), shared);
}
