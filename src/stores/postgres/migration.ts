/** The table and the routines that the store needs, and how they come into the database. */

import { systemClock } from "../../platform/index.ts";
import { checkOptionNames } from "../../store/index.ts";
import { accessTo, checkClient, type PostgresClient, type Send } from "./client.ts";
import { mapError } from "./errors.ts";
import { checkDatabase, type DatabaseFacts, databaseQuery } from "./hello.ts";
import { createRoutines } from "./routines.ts";
import { dollarQuoted, literal, type TableNames, tableNames } from "./table.ts";

/** Options of `migratePostgres` and `postgresMigration`. */
export interface PostgresMigrationOptions {
  /** The table, or schema and table with a dot between them. Default "holdfast_locks". */
  readonly table?: string;
}

export const DEFAULT_TABLE = "holdfast_locks";

/**
 * Makes the table and the function, where they are not there yet. Safe to repeat, and to run from several processes at
 * the same time.
 *
 * @example
 * await migratePostgres(pool);
 */
export async function migratePostgres(
  client: PostgresClient,
  options: PostgresMigrationOptions = {},
): Promise<void> {
  const names = namesOf(options);
  const { send } = accessTo(checkClient(client), { clock: systemClock, timeoutMs: PATIENCE_MS });
  try {
    await migrate(send, names);
  } catch (error) {
    throw mapError(error);
  }
}

/** Making a table may wait for others who use the database. */
const PATIENCE_MS = 60_000;

/** Rejects with the errors of the client. */
export async function migrate(send: Send, names: TableNames): Promise<void> {
  const text = migrationOf(names);
  const { rows = [] } = await send({ text: databaseQuery() });
  const [facts] = rows as DatabaseFacts[];
  if (facts !== undefined) checkDatabase(facts);
  await send({ text });
}

/**
 * The same as text, for a migration tool: several statements, to be run in one transaction, as a text without values is by
 * all clients.
 */
export function postgresMigration(options: PostgresMigrationOptions = {}): string {
  return migrationOf(namesOf(options));
}

function namesOf(options: PostgresMigrationOptions): TableNames {
  checkOptionNames("postgresMigration", options, { table: true });
  return tableNames(options.table ?? DEFAULT_TABLE);
}

function migrationOf(names: TableNames): string {
  const steps = [lockMigrations(), createTable(names), checkColumns(names), createRoutines(names)];
  return `${steps.join(";\n\n")};\n`;
}

/** "If not exists" and "or replace" are no help to two that come at the same time. The number is Holdfast's own. */
function lockMigrations(): string {
  return "select pg_advisory_xact_lock(5219013378245012)";
}

/**
 * Every change of a record is a new copy of its row. With half of each page free, the copy goes into the same page and no
 * index has to know of it, as long as no column that changes is indexed; the next visitor of the page clears the old one
 * away. So there is no index but the key's, and a vacuum has little to do.
 */
function createTable({ table }: TableNames): string {
  return `create table if not exists ${table} (
  key text collate "C" primary key,
  version uuid not null,
  record text not null,
  idle boolean not null,
  keep_until_ms bigint not null
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1)`;
}

/** Somebody else's table of that name fails here, with the server's own error for a column that is not there, and nothing is made for it. */
function checkColumns({ table }: TableNames): string {
  return `do ${dollarQuoted(`begin
  if (
    select count(*) from pg_attribute
    where attrelid = ${literal(table)}::regclass and not attisdropped
      and attname in ('key', 'version', 'record', 'idle', 'keep_until_ms')
  ) <> 5 then
    raise exception 'the table is not one of Holdfast' using errcode = 'undefined_column';
  end if;
end`)}`;
}
