/**
 * The table of the store, and the procedures that make each request one round trip.
 *
 * docs/decisions/0010-mysql-one-call.md says why there are procedures at all, and which race each part of them closes.
 */
import { checkOptionNames, HoldfastError } from "../../store/index.ts";
import { checkClient, type MysqlClient, type Send, sender } from "./client.ts";
import { readOnlyError, serverErrno } from "./errors.ts";
import { NOW_US } from "./statements.ts";
import { DEFAULT_TABLE, PARTITION, type TableNames, tableNames } from "./table.ts";
import { checkVersion } from "./version.ts";

/** Options of `migrateMysql`. */
export interface MysqlMigrationOptions {
  /**
   * The table, or database and table with a dot between them: letters, digits, "_", "$" and "-", at most 50 for the table. Default
   * "holdfast_locks".
   */
  readonly table?: string;
}

/** Making a table may wait for others who use the database. */
const PATIENCE_MS = 60_000;

/**
 * Makes the table and the procedures that the store needs, where they are missing. Safe to repeat, also by several at once.
 *
 * @example
 * await migrateMysql(pool);
 */
export async function migrateMysql(client: MysqlClient, options: MysqlMigrationOptions = {}): Promise<void> {
  checkOptionNames("migrateMysql", options, { table: true });
  const names = tableNames(options.table ?? DEFAULT_TABLE);
  await migrate(sender(checkClient(client), PATIENCE_MS), names);
}

/**
 * A server that is too old would make the table and may fail at the procedures, so it is told apart before anything is made. A
 * user with all rights could write to a replica, too, which would go its own way from then on.
 */
export async function migrate(send: Send, names: TableNames): Promise<void> {
  const [rows = []] = await send(
    `select version(), ${IS_READ_ONLY}, find_in_set('ORACLE', @@sql_mode) > 0 limit 1`,
  );
  const [version, isReadOnly, isLikeOracle] = rows[0] ?? [];
  checkVersion(String(version));
  if (Number(isLikeOracle) !== 0) throw likeOracle();
  if (Number(isReadOnly) !== 0) throw readOnlyError();
  await send(createTable(names));
  // Somebody else's table of that name fails here, before anything is made for it. Who may not look at it learns that at first use.
  await unless(CANNOT_TELL, send(`select ${COLUMNS} from ${names.rows} limit 0`));
  // Not every server knows `if not exists` for a procedure.
  for (const procedure of [createSwap(names), createSweep(names)])
    await unless(PROCEDURE_EXISTS, send(procedure));
}

/** Procedures have another syntax there, and keep the mode in which they were made. */
function likeOracle(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The session has sql_mode = oracle, in which the procedures of the store cannot be made. Run migrateMysql over a connection that has run set sql_mode = ''. The store itself works in that mode.",
  );
}

/** This user may not look, or a proxy sends what looks to a replica that has no such table yet. */
const CANNOT_TELL: readonly number[] = [1142, 1143, 1146];
const PROCEDURE_EXISTS: readonly number[] = [1304];

/** Passes over these answers of the server. */
async function unless(errnos: readonly number[], sent: Promise<unknown>): Promise<void> {
  try {
    await sent;
  } catch (error) {
    if (!errnos.includes(serverErrno(error) ?? 0)) throw error;
  }
}

const COLUMNS = "lock_key, version, record, idle, keep_until_ms, keep_until_second";

/**
 * Keys are bytes, so that no collation takes two of them for one, and so that their order is that of `list`.
 *
 * The sweep finds old records by the second of `keep_until_ms`. Every renewal changes the milliseconds, and an index of those
 * would be written with each; that of the seconds is written once a second at most.
 */
function createTable({ table }: TableNames): string {
  return `
create table if not exists ${table} (
  lock_key varbinary(512) not null,
  version binary(16) not null,
  record longtext character set utf8mb4 collate utf8mb4_bin not null,
  idle tinyint not null,
  keep_until_ms bigint not null,
  keep_until_second bigint not null,
  primary key (lock_key),
  key keep_until (keep_until_second)
) engine = InnoDB row_format = dynamic comment = 'Locks of Holdfast, record format 1'
partition by key (lock_key) (partition ${PARTITION})`;
}

/** Fails in somebody else's transaction, instead of ending that; and before there is a handler that rolls back. */
const NOT_IN_A_TRANSACTION = "set transaction isolation level read committed;";

/** Whatever `completion_type` the session has: neither begins another transaction, nor ends the connection. */
const COMMIT = "commit and no chain no release;";
const ROLLBACK = "rollback and no chain no release;";

/**
 * `set timestamp` gives a session a clock of its own, which `sysdate` does not follow unless the server was told to. (1) P
 * holds a lock. (2) Q's pool has a connection whose clock is ahead. (3) Q drops P's claim as if its time were up, and is granted.
 */
const BY_THE_CLOCK_OF_THE_SERVER = `if abs(timestampdiff(second, now(6), sysdate(6))) > 5 then
      signal sqlstate '45000' set message_text = 'The session has a clock of its own';
    end if;`;

const IS_READ_ONLY = "cast(@@global.read_only as char) not in ('0', 'OFF')";

/** Users with all rights may write to a replica all the same. */
const NOT_ON_A_REPLICA = `if ${IS_READ_ONLY} then
      signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'The server is read-only';
    end if;`;

/**
 * first_write   a statement that writes, or nothing where there is only something to compare
 * other_writes  further ones, with a semicolon after each; all in the order of the keys' bytes
 * asked         how many changes the batch has
 * comparison    a statement that looks at all keys of the batch
 * earliest_ms   the server's time at which changes may be made, and
 * latest_ms     until when
 *
 * Answers first one row: whether all that was asked is written, and the server's time in microseconds. If not, then the rows
 * of the comparison. The statements are texts, because whatever takes values apart inside of a procedure is slow. They are
 * run with the rights of whoever sent them, and nothing of them is left in the session.
 */
function createSwap({ swap }: TableNames): string {
  return `
create procedure ${swap}(
  in first_write longblob,
  in other_writes longblob,
  in asked int,
  in comparison longblob,
  in earliest_ms bigint,
  in latest_ms bigint
)
  modifies sql data
  sql security invoker
begin
  ${NOT_IN_A_TRANSACTION}
  begin
    declare now_us bigint;
    declare written int default 0;
    declare from_place int default 1;
    declare to_place int;
    declare exit handler for sqlexception begin
      -- It may not have come to a statement.
      declare continue handler for 1243 begin end;
      ${ROLLBACK}
      set @holdfast_swap = null;
      deallocate prepare holdfast_swap;
      resignal;
    end;

    start transaction read write;
    ${NOT_ON_A_REPLICA}
    ${BY_THE_CLOCK_OF_THE_SERVER}
    set now_us = ${NOW_US};
    if now_us between earliest_ms * 1000 and latest_ms * 1000 then
      set @holdfast_swap = first_write;
      while length(@holdfast_swap) > 0 do
        prepare holdfast_swap from @holdfast_swap;
        execute holdfast_swap;
        set written = written + row_count();
        deallocate prepare holdfast_swap;
        set to_place = locate(';', other_writes, from_place);
        set @holdfast_swap = substr(other_writes, from_place, to_place - from_place);
        set from_place = to_place + 1;
      end while;
      -- It may have become one while rows were waited for.
      ${NOT_ON_A_REPLICA}
      -- It may have taken long to get at the rows. Now they are ours until the commit.
      set now_us = ${NOW_US};
      if now_us > latest_ms * 1000 and written > 0 then
        ${ROLLBACK}
        set written = 0;
        set transaction isolation level read committed;
        start transaction read only;
      end if;
    end if;

    select written = asked, now_us;
    if written <> asked then
      set @holdfast_swap = comparison;
      prepare holdfast_swap from @holdfast_swap;
      execute holdfast_swap;
      deallocate prepare holdfast_swap;
    end if;
    set @holdfast_swap = null;
    ${COMMIT}
  end;
end`;
}

/**
 * most  how many records to remove
 *
 * Answers one row: how many were removed. They are looked for without locks, and then removed in the order of their keys, as
 * swaps lock them: so neither waits for the other in a circle. Whoever was used in between is not due any more. But two that insert a key right after it was removed may have
 * to be tried again: docs/decisions/0010-mysql-one-call.md.
 */
function createSweep({ rows, sweep }: TableNames): string {
  return `
create procedure ${sweep}(in most bigint)
  modifies sql data
  sql security invoker
begin
  ${NOT_IN_A_TRANSACTION}
  begin
    declare k varbinary(512);
    declare now_ms bigint;
    declare removed bigint default 0;
    declare is_done tinyint default 0;
    declare old_keys cursor for
      select o.lock_key from (
        select t.lock_key from ${rows} t
        where t.keep_until_second <= now_ms div 1000 and t.keep_until_ms < now_ms
        order by t.keep_until_second
        limit most
      ) o order by o.lock_key;
    declare continue handler for not found set is_done = 1;
    declare exit handler for sqlexception begin ${ROLLBACK} resignal; end;

    start transaction read write;
    ${NOT_ON_A_REPLICA}
    ${BY_THE_CLOCK_OF_THE_SERVER}
    set now_ms = ${NOW_US} div 1000;
    open old_keys;
    each_key: loop
      fetch old_keys into k;
      if is_done then leave each_key; end if;
      delete from ${rows} where lock_key = k and keep_until_ms < now_ms;
      set removed = removed + row_count();
    end loop;
    close old_keys;
    ${COMMIT}
    select removed;
  end;
end`;
}
