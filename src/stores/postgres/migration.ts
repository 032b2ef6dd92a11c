/** Creates the table and the routines of the store. */
import { checkOptionNames } from "../../store/index.ts";
import { checkClient, type PostgresClient, type Send, senderOver } from "./client.ts";
import { mapError } from "./errors.ts";
import { DEFAULT_TABLE } from "./options.ts";
import { createRoutines } from "./procedures.ts";
import { checkDatabase, type DatabaseFacts, databaseQuery } from "./readiness.ts";
import { dollarQuoted, literal, type TableNames, tableNames } from "./table.ts";

/** Options of `migratePostgres` and `postgresMigration`. */
export interface PostgresMigrationOptions {
  /** The table, or schema and table with a dot between them. Default "holdfast_locks". */
  readonly table?: string;
}

/**
 * Creates the table and the routines if they are missing. Safe to repeat, and to run from several processes at the same time.
 *
 * @example
 * await migratePostgres(pool);
 */
export async function migratePostgres(
  client: PostgresClient,
  options: PostgresMigrationOptions = {},
): Promise<void> {
  const names = namesOf(options);
  try {
    await migrate(senderOver(checkClient(client), TIMEOUT_MS), names);
  } catch (error) {
    throw mapError(error);
  }
}

/** A new table may have to wait for other transactions. */
const TIMEOUT_MS = 60_000;

/** Rejects with the errors of the client. */
export async function migrate(send: Send, names: TableNames): Promise<void> {
  const text = migrationOf(names);
  const { rows = [] } = await send({ text: databaseQuery() });
  const [facts] = rows as DatabaseFacts[];
  if (facts !== undefined) checkDatabase(facts);
  await send({ text });
}

/** The migration as text for a migration tool: several statements, to be run in one transaction. */
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

/** "If not exists" and "or replace" fail if two migrations run at the same time. The number is arbitrary. */
function lockMigrations(): string {
  return "select pg_advisory_xact_lock(5219013378245012)";
}

/**
 * Every change of a record writes a copy of its row. With half of each page free and no index on the changing columns, the copy stays
 * in its page, indexes do not change, and a vacuum has little to do.
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

/** Another program's table of that name fails here, before routines are created for it. */
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
