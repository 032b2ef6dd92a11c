/** The driver by itself, for tests of what a store over it would hide. */
import { type Clock, systemClock } from "holdfast";
import type { CasDriver, Change, Version } from "holdfast/cas";
import type { PostgresClient } from "holdfast/postgres";
import { senderOver } from "../../../src/stores/postgres/client.ts";
import { connectionsOf, isPool, poolListener } from "../../../src/stores/postgres/connections.ts";
import { postgresDriver } from "../../../src/stores/postgres/driver.ts";
import { tableNames } from "../../../src/stores/postgres/table.ts";

export interface NewDriverOptions {
  readonly table?: string;
  readonly clock?: Clock;
  /** Whether a connection of a pool listens. Default true. */
  readonly listens?: boolean;
}

export async function newDriver(client: PostgresClient, options: NewDriverOptions = {}): Promise<CasDriver> {
  const { table = "holdfast_locks", clock = systemClock, listens = true } = options;
  const timeoutMs = 5_000;
  const connections = isPool(client) ? connectionsOf(client) : undefined;
  const openListener =
    listens && isPool(client) && connections !== undefined
      ? poolListener(client, connections, clock, timeoutMs)
      : undefined;
  const send = senderOver(client, timeoutMs, connections);
  const names = tableNames(table);
  const driver = postgresDriver({ client, send, names, autoMigrate: true, openListener, clock, timeoutMs });
  await driver.prepare?.();
  return driver;
}

export function changeOf(key: string, expected: Version | undefined, text: string | undefined): Change {
  return { key, expected, text, idle: false, keepUntilMs: Date.now() + 86_400_000, dropped: [], wakes: [] };
}

/** A batch that any server's clock agrees with. */
export function anyTime(changes: readonly Change[]) {
  return { changes, earliestMs: 0, latestMs: 8_640_000_000_000_000 };
}
