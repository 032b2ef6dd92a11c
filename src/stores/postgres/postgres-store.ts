import { systemClock } from "../../platform/index.ts";
import type { Store } from "../../store/index.ts";
import { casDefaults, casStore } from "../cas/index.ts";
import { checkClient, type PostgresClient, senderOver } from "./client.ts";
import { connectionsOf, isPool, poolListener } from "./connections.ts";
import { postgresDriver } from "./driver.ts";
import { type PostgresStoreOptions, resolveOptions } from "./options.ts";

/**
 * A store in PostgreSQL 12 or newer, through the application's pool or client. `migratePostgres` creates its table.
 *
 * @example
 * const locks = createLocks(postgresStore(new Pool()));
 */
export function postgresStore(client: PostgresClient, options: PostgresStoreOptions = {}): Store {
  checkClient(client);
  const { listener, shared, ...settings } = resolveOptions(options);
  const { clock = systemClock, requestTimeoutMs: timeoutMs = casDefaults.requestTimeoutMs } = shared;
  const connections = isPool(client) ? connectionsOf(client) : undefined;
  const ownListener =
    listener === undefined && isPool(client) && connections !== undefined
      ? poolListener(client, connections, clock, timeoutMs)
      : undefined;
  const driver = postgresDriver({
    ...settings,
    client,
    send: senderOver(client, timeoutMs, connections),
    openListener: listener || ownListener,
    clock,
    timeoutMs,
  });
  return casStore(driver, shared);
}
