/** What is checked before a store is used: once, in one round trip, so that a mistake is told instead of met later. */
import { HoldfastError, StoreUnavailableError } from "../../core/index.ts";
import type { TableNames } from "./table.ts";

/** What the server says of itself and of the store's table. */
export interface ServerFacts {
  /** 150004 is 15.4. */
  readonly version: number;
  readonly encoding: string;
  readonly isolation: string;
  readonly read_only: boolean;
  /** Whether there is such a table, and whether it is `p`ermanent or `u`nlogged. */
  readonly persistence: string | null;
  readonly has_function: boolean;
  /** Whether old records can be removed. Null where there is no table. */
  readonly may_delete: boolean | null;
}

const OLDEST = 12;

/**
 * Whether nothing can be written here. A transaction that began on a replica stays read only when that becomes the primary
 * meanwhile, and still sees what the replica had.
 */
export const TAKES_NO_WRITES = "pg_is_in_recovery() or current_setting('transaction_read_only')::boolean";

export const writableQuery = `select ${TAKES_NO_WRITES} as read_only`;

export function databaseQuery(): string {
  return `select
  current_setting('server_version_num')::int as version,
  current_setting('server_encoding') as encoding`;
}

/** $1: the table. $2: the function with its parameters. */
export function factsQuery(): string {
  return `${databaseQuery()},
  current_setting('transaction_isolation') as isolation,
  ${TAKES_NO_WRITES} as read_only,
  (select relpersistence::text from pg_class where oid = to_regclass($1)) as persistence,
  to_regprocedure($2) is not null as has_function,
  has_table_privilege(to_regclass($1), 'delete') as may_delete`;
}

export function isMigrated(facts: ServerFacts): boolean {
  return facts.persistence !== null && facts.has_function;
}

/** Throws what is wrong, with what to do about it. Before anything is made there. */
export function checkServer(facts: ServerFacts): void {
  checkDatabase(facts);
  const { isolation } = facts;
  if (isolation !== "read committed") {
    throw unsupported(
      `Transactions of this client are "${isolation}", in which a change that others made meanwhile cannot be seen. Set default_transaction_isolation to "read committed" for its user.`,
    );
  }
}

/** The same for what does not depend on who asks. */
export function checkDatabase({ version, encoding }: Pick<ServerFacts, "version" | "encoding">): void {
  if (Math.floor(version / 10_000) < OLDEST) {
    const shown = version < 100_000 ? "older than 10" : String(Math.floor(version / 10_000));
    throw unsupported(
      `PostgreSQL ${shown} is too old. The store needs ${OLDEST} or newer: upgrade the server.`,
    );
  }
  if (encoding !== "UTF8") {
    throw unsupported(
      `The encoding of the database is ${encoding}, in which not every key can be written. Use a database with the encoding UTF8.`,
    );
  }
}

/** Nobody who asks for a lock would notice that old records stay for ever. Who only looks needs no such right. */
export function checkRemoval({ may_delete: mayDelete }: ServerFacts, { given }: TableNames): void {
  if (mayDelete !== false) return;
  throw new HoldfastError(
    "UNAUTHORIZED",
    `The user may not delete from the table "${given}", so records that nobody uses would stay for ever. Grant it: docs/stores/postgres.md lists the rights.`,
  );
}

/** Throws what is wrong with the table, or that there is none. */
export function checkTable(facts: ServerFacts, { given }: TableNames): void {
  const { persistence } = facts;
  if (!isMigrated(facts)) {
    const missing = persistence === null ? `table "${given}"` : `function of the table "${given}"`;
    // What is in a schema without usage does not exist for the user, by the server's answer.
    const otherwise =
      persistence === null
        ? " If it does exist, its schema is not in the search_path, or the user lacks usage on it: docs/stores/postgres.md lists the rights."
        : "";
    throw new HoldfastError(
      "STORE_FAILURE",
      `The ${missing} does not exist: run migratePostgres(client, { table }), or pass autoMigrate: true.${otherwise}`,
    );
  }
  if (persistence !== "p") {
    throw unsupported(
      `The table "${given}" is unlogged or temporary, so a crash would empty it while leases are held. Make it permanent: alter table … set logged.`,
    );
  }
}

/**
 * Also of whatever only reads: what a replica has may be long past. It may become the primary, or the client find that, so this
 * is no mistake.
 */
export function checkWritable({ read_only: readOnly }: Pick<ServerFacts, "read_only">): void {
  if (!readOnly) return;
  throw new StoreUnavailableError(
    "PostgreSQL takes no writes: it is a replica, as after a failover, or was set to read only. Point the client at the primary.",
  );
}

function unsupported(message: string): HoldfastError {
  return new HoldfastError("UNSUPPORTED", message);
}
