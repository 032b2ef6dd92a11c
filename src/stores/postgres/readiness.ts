/** Checks the server, the session and the table at first use, in one round trip. */
import { HoldfastError, StoreUnavailableError } from "../../store/index.ts";
import { wrongEncoding, wrongIsolation } from "./errors.ts";
import type { Statement } from "./statements.ts";
import { SWAP_PARAMETERS, type TableNames } from "./table.ts";

/** Settings that any session of a pool may have. */
export interface SessionFacts {
  readonly read_only: boolean;
  /** Its client_encoding. */
  readonly encoding: string;
}

export interface DatabaseFacts {
  /** 150004 is 15.4. */
  readonly version: number;
  readonly server_encoding: string;
}

export interface ServerFacts extends SessionFacts, DatabaseFacts {
  readonly isolation: string;
  /** The schema of the table, or the schema for a new table. Null if the search_path has no existing schema. */
  readonly schema: string | null;
  /** `p`ermanent, `u`nlogged or `t`emporary. Null if there is no such table. */
  readonly persistence: string | null;
  readonly has_procedure: boolean;
  /** Null if there is no table. */
  readonly may_delete: boolean | null;
  readonly search_path: string;
  /** Whether the session has had its search_path since it began. */
  readonly is_own_path: boolean;
  /** The first of the other schemas that have a migrated table of this name. */
  readonly elsewhere: string | null;
}

const OLDEST = 12;

/** A transaction that began on a replica stays read only, and sees the replica's data, when the replica becomes the primary. */
export const TAKES_NO_WRITES = "pg_is_in_recovery() or current_setting('transaction_read_only')::boolean";

/** Microseconds, as a whole number: the text of a fraction depends on extra_float_digits, and a rounded clock ends leases early. */
export const NOW_US = "(extract(epoch from clock_timestamp()) * 1000000)::bigint";

export const writableQuery = `select ${TAKES_NO_WRITES} as read_only`;

export function databaseQuery(): string {
  return `select
  current_setting('server_version_num')::int as version,
  current_setting('server_encoding') as server_encoding`;
}

export function factsStatement({ table, schema, name, swapName }: TableNames): Statement {
  const arity = String(SWAP_PARAMETERS.length + 1);
  const isMigratedIn = (namespace: string) => `exists (
    select from pg_proc where proname = $4 and pronargs = $5::int and pronamespace = ${namespace}
  )`;
  const text = `${databaseQuery()},
  current_setting('transaction_isolation') as isolation,
  ${TAKES_NO_WRITES} as read_only,
  pg_client_encoding()::text as encoding,
  coalesce(found.schema, nullif($2, ''), current_schema()::text) as schema,
  found.persistence,
  ${isMigratedIn("found.namespace")} as has_procedure,
  has_table_privilege(asked.oid, 'delete') as may_delete,
  current_setting('search_path') as search_path,
  (select reset_val = setting from pg_settings where name = 'search_path') as is_own_path,
  (
    select min(place.nspname::text)
    from pg_class as other join pg_namespace as place on place.oid = other.relnamespace
    where other.relname = $3 and other.oid is distinct from asked.oid and ${isMigratedIn("place.oid")}
  ) as elsewhere
from (select to_regclass($1) as oid) as asked
left join lateral (
  select place.oid as namespace, place.nspname::text as schema, lock.relpersistence::text as persistence
  from pg_class as lock join pg_namespace as place on place.oid = lock.relnamespace
  where lock.oid = asked.oid
) as found on true`;
  return { text, values: [table, schema ?? "", name, swapName, arity] };
}

export function isMigrated(facts: ServerFacts): boolean {
  return facts.persistence !== null && facts.has_procedure;
}

export function checkServer(facts: ServerFacts): void {
  checkDatabase(facts);
  checkSession(facts);
  if (facts.isolation !== "read committed") throw wrongIsolation();
}

export function checkDatabase({ version, server_encoding: encoding }: DatabaseFacts): void {
  if (Math.floor(version / 10_000) < OLDEST) {
    const shown = version < 100_000 ? "older than 10" : String(Math.floor(version / 10_000));
    throw unsupported(`PostgreSQL ${shown} is too old. Upgrade the server to ${OLDEST} or newer.`);
  }
  if (encoding !== "UTF8") {
    throw unsupported(
      `The encoding of the database is ${encoding}, which cannot represent every key. Use a database with the encoding UTF8.`,
    );
  }
}

/**
 * Throws if the search_path that found the table may be a leftover. (1) The application runs `set search_path` on a connection of the
 * pool. (2) That one serves the store's first use, which finds or makes another schema's table. (3) Both tables have a holder.
 */
export function checkSchema(facts: ServerFacts, { schema, name }: TableNames, autoMigrate: boolean): void {
  const { search_path: path, is_own_path: isOwnPath, elsewhere, persistence } = facts;
  if (schema !== undefined || elsewhere === null) return;
  const isMissing = persistence === null;
  if (isOwnPath && (!isMissing || autoMigrate)) return;
  throw failed(
    isMissing
      ? `The table "${name}" is in the schema "${elsewhere}", but the search_path of the connection is ${path}. Name the schema: table: "${elsewhere}.${name}".`
      : `The schemas "${facts.schema}" and "${elsewhere}" both have a table "${name}", and the search_path of the connection was changed to ${path}. Name the schema: table: "${elsewhere}.${name}" or "${facts.schema}.${name}".`,
  );
}

/** Without this check, old records would stay without a notice. `inspect` and `list` do not need the right. */
export function checkRemoval({ may_delete: mayDelete }: ServerFacts, { given }: TableNames): void {
  if (mayDelete !== false) return;
  throw new HoldfastError(
    "UNAUTHORIZED",
    `The user may not delete from the table "${given}", so unused records would stay for ever. Grant the rights that docs/stores/postgres.md lists.`,
  );
}

export function checkTable(facts: ServerFacts, { given }: TableNames): void {
  const { persistence } = facts;
  if (!isMigrated(facts)) {
    const missing = persistence === null ? `table "${given}"` : `procedure of the table "${given}"`;
    // The server does not show a table in a schema without usage.
    const otherwise =
      persistence === null
        ? " If it does exist, its schema is not in the search_path, or the user lacks usage on it. docs/stores/postgres.md lists the rights to grant."
        : "";
    throw failed(
      `The ${missing} does not exist. Run migratePostgres(client, { table }), or pass autoMigrate: true.${otherwise}`,
    );
  }
  if (persistence !== "p") {
    throw unsupported(
      `The table "${given}" is unlogged or temporary, so a crash would empty it while leases are held. Make the table permanent: alter table … set logged.`,
    );
  }
}

/** Reads are checked as well: a replica may lag. Another attempt may reach the primary, so this is an outage. */
export function checkWritable({ read_only: readOnly }: Pick<SessionFacts, "read_only">): void {
  if (!readOnly) return;
  throw new StoreUnavailableError(
    "PostgreSQL accepts no writes: it is a replica, as after a failover, or is read-only. Point the client at the primary.",
  );
}

/** Reads are checked as well: a record that was read in another encoding would be written back wrong. */
export function checkSession({ encoding }: SessionFacts): void {
  if (encoding !== "UTF8") throw wrongEncoding();
}

function failed(message: string): HoldfastError {
  return new HoldfastError("STORE_FAILURE", message);
}

function unsupported(message: string): HoldfastError {
  return new HoldfastError("UNSUPPORTED", message);
}
