import { HoldfastError } from "../../store/index.ts";

/**
 * MySQL: the oldest that passed the tests; older ones may work, and were not tried since a batch is no JSON any more. MariaDB: the oldest
 * with what the store asks for, by its documents; docs/stores/mysql.md lists those that the tests ran with.
 */
const OLDEST = { MySQL: [8, 0, 33], MariaDB: [10, 6, 0] } as const;

/** Throws where the server, by what its `version()` says, is too old. */
export function checkVersion(version: string): void {
  const product = /mariadb/i.test(version) ? "MariaDB" : "MySQL";
  const oldest = OLDEST[product];
  const found = /^(\d+)\.(\d+)\.(\d+)/.exec(version)?.slice(1).map(Number) ?? [0];
  const differs = oldest.findIndex((part, index) => part !== found[index]);
  if (differs === -1 || (found[differs] ?? 0) > (oldest[differs] ?? 0)) return;
  throw new HoldfastError(
    "UNSUPPORTED",
    `The server is ${product} ${version}, and this store needs ${product} ${oldest.join(".")} or newer. Upgrade it, or use another store.`,
  );
}
