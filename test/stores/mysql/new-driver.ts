/** The driver by itself, for tests of what a store over it would hide. */
import type { CasDriver, Change, Version } from "holdfast/cas";
import type { MysqlClient } from "holdfast/mysql";
import { sender } from "../../../src/stores/mysql/client.ts";
import { mysqlDriver } from "../../../src/stores/mysql/driver.ts";
import { tableNames } from "../../../src/stores/mysql/table.ts";

/** A busy machine takes seconds to move the largest record. */
const PATIENCE_MS = 15_000;

export function newDriver(client: MysqlClient, maxRecordBytes = 1_048_576): CasDriver {
  return mysqlDriver({
    send: sender(client, PATIENCE_MS),
    names: tableNames("holdfast_locks"),
    autoMigrate: false,
    durability: "ephemeral",
    maxRecordBytes,
  });
}

export function changeOf(key: string, expected: Version | undefined, text: string | undefined): Change {
  return { key, expected, text, idle: false, keepUntilMs: 4_000_000_000_000, dropped: [], wakes: [] };
}

/** Makes changes at the present time, which the server may make until so long after it. */
export async function swapNow(driver: CasDriver, changes: readonly Change[], forMs = 60_000) {
  const { nowMs } = await driver.read([]);
  return driver.swap({ changes, earliestMs: Math.floor(nowMs), latestMs: Math.ceil(nowMs) + forMs });
}
