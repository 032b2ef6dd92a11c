/**
 * Fenced transactions in PostgreSQL.
 *
 * The guard writes the fence into the row of its resource, where that has no newer one, and so locks the row until the end of
 * the transaction. The interleavings, with an older holder O (fence 5) and a newer one N (fence 6):
 *
 * - N's guard ran, and N has not committed. O's guard waits for the row. After N's commit, at READ COMMITTED, the comparison
 *   is made again with the row as it is then: 6 is above 5, so no row is written, which is STALE_FENCE. At REPEATABLE READ and
 *   SERIALIZABLE the server answers 40001 instead: the transaction has to be run again, and then it is STALE_FENCE.
 * - The same, and N rolls back. Its mark goes with it. O is let through, as nobody newer has written anything.
 * - O's guard ran first. N waits for O's end, and comes after it: at READ COMMITTED at once, above with another attempt.
 * - O began, and took its snapshot, before N committed; its guard runs after. At READ COMMITTED it sees N's mark. Above, the row
 *   that it would change is newer than its snapshot: 40001, never a pass.
 * - Neither finds a row, and both insert. The second waits for the first's end at the unique index, and goes on as with a row
 *   that was there (READ COMMITTED), or gets 40001 because that row is not in its snapshot.
 *
 * `test/fencing/postgres.test.ts` has a test of each.
 */
import { invalid } from "../store/index.ts";
import { type Fenced, fenceOf, resourceOf, StaleFenceError } from "./fence.ts";
import { postgresError } from "./sql-errors.ts";
import { type FenceTable, quotedTable, type SqlFenceOptions } from "./sql-table.ts";

/** A connection with a transaction of the caller's on it: a `Client` of `pg`, or what its pool hands out. */
export interface PostgresTransaction {
  query(text: string, values?: string[]): Promise<{ readonly rows: readonly unknown[] }>;
}

/**
 * Lets the transaction go on if its fence is not older than any that has written to the resource, and throws STALE_FENCE
 * otherwise. Until the end of the transaction nobody else gets past it, so call it first, before anything is read that the
 * writes depend on.
 *
 * `STORE_UNAVAILABLE` means that the transaction may be run again as a whole. After any error, roll back.
 *
 * @example
 * await client.query("begin");
 * await fencePostgres(client, lease);
 * await client.query("update accounts set …");
 * await client.query("commit");
 */
export async function fencePostgres(
  client: PostgresTransaction,
  lease: Fenced,
  options: SqlFenceOptions = {},
): Promise<void> {
  const table = quotedTable(options.table, '"');
  checkConnection(client);
  const fence = fenceOf(lease);
  const resource = resourceOf(lease, options.resource);
  try {
    if (!isInTransaction(client)) await client.query(needTransaction(table));
    const { rows } = await client.query(raiseMark(table), [resource, String(fence)]);
    if (rows.length > 0) return;
    const [found] = (await client.query(readMark(table), [resource])).rows;
    const { mark } = Object(found) as { mark?: string };
    throw new StaleFenceError(resource, fence, mark === undefined ? undefined : BigInt(mark));
  } catch (error) {
    throw postgresError(error);
  }
}

/** Makes the table, where it is missing. Safe to repeat, and to run from several processes at once. */
export async function migratePostgresFence(
  client: PostgresTransaction,
  options: FenceTable = {},
): Promise<void> {
  const text = postgresFenceMigration(options);
  if (typeof Object(client).query !== "function") throw wrongClient(client);
  try {
    await client.query(text);
  } catch (error) {
    throw postgresError(error);
  }
}

/** The same as text, for a migration tool, to be run in one transaction. */
export function postgresFenceMigration(options: FenceTable = {}): string {
  const table = quotedTable(options.table, '"');
  // "If not exists" is no help to two that come at the same time. The number is Holdfast's own.
  return `select pg_advisory_xact_lock(5219013378245012);

create table if not exists ${table} (
  resource text collate "C" primary key,
  fence bigint not null
) with (fillfactor = 50);
`;
}

function raiseMark(table: string): string {
  return `insert into ${table} as mark (resource, fence) values ($1, $2::bigint)
on conflict (resource) do update set fence = excluded.fence where mark.fence <= excluded.fence
returning 1`;
}

function readMark(table: string): string {
  return `select fence::text as mark from ${table} where resource = $1`;
}

/** Fails where there is no transaction, and takes no more than what writing to the table takes anyway. */
function needTransaction(table: string): string {
  return `lock table ${table} in row exclusive mode`;
}

/** Newer versions of pg know what the server said last; for all others the server is asked. */
function isInTransaction(client: PostgresTransaction): boolean {
  const { getTransactionStatus } = client as { getTransactionStatus?: () => unknown };
  return typeof getTransactionStatus === "function" && getTransactionStatus.call(client) === "T";
}

function checkConnection(client: PostgresTransaction): void {
  if (typeof Object(client).query !== "function") throw wrongClient(client);
  const { totalCount, connect } = client as { totalCount?: unknown; connect?: unknown };
  if (typeof totalCount === "number" && typeof connect === "function") {
    throw invalid(
      "client must be one connection with a transaction on it, not a pool, whose queries may go to different connections. Pass the result of await pool.connect().",
    );
  }
}

function wrongClient(client: unknown): Error {
  return invalid(
    `client must be a Client of pg, or an object with query(text, values), not ${client === null ? "null" : typeof client}.`,
  );
}
