/**
 * The table of the store, and the procedures that make each request one round trip.
 *
 * docs/decisions/0010-mysql-one-call.md says why there are procedures at all, and which race each part of them closes.
 */
import { HoldfastError } from "../../core/index.ts";
import { checkClient, type MysqlClient, type Send, sender } from "./client.ts";
import { serverErrno } from "./errors.ts";
import { NOW_US } from "./statements.ts";
import { DEFAULT_TABLE, type TableNames, tableNames } from "./table.ts";

export interface MysqlMigrationOptions {
  /** The table, or database and table with a dot between them. Default "holdfast_locks". */
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
  const names = tableNames(options.table ?? DEFAULT_TABLE);
  await migrate(sender(checkClient(client), PATIENCE_MS), names);
}

export async function migrate(send: Send, names: TableNames): Promise<void> {
  await send(createTable(names));
  for (const procedure of [createSwap(names), createSweep(names)]) await unlessThere(send(procedure));
}

const PROCEDURE_EXISTS = 1304;

/** Not every server knows `if not exists` for a procedure. */
async function unlessThere(creating: Promise<unknown>): Promise<void> {
  try {
    await creating;
  } catch (error) {
    if (!(error instanceof HoldfastError) || serverErrno(error) !== PROCEDURE_EXISTS) throw error;
  }
}

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
) engine = InnoDB row_format = dynamic comment = 'Locks of Holdfast, record format 1'`;
}

/** A batch as the procedure reads it. What does not fit a column is an error, and not silently null. */
const CHANGES = `json_table(changes, '$[*]' columns (
  place for ordinality,
  lock_key varchar(512) character set utf8mb4 path '$[0]' error on error,
  expected varchar(32) character set utf8mb4 path '$[1]' error on error,
  record longtext character set utf8mb4 path '$[2]' error on error,
  idle tinyint path '$[3]' error on error,
  keep_until_ms bigint path '$[4]' error on error
))`;

/**
 * changes       JSON: [[key, expected version or null, record or null, idle, keepUntilMs], …] in the order of the keys' bytes
 * next_version  the version of whatever is written
 * earliest_ms   the server's time at which changes may be made, and
 * latest_ms     until when
 *
 * Answers first one row: a letter for each change, and the server's time in microseconds. w: written. s: the same as expected,
 * and nothing to write. c: conflict. u: untimely. Then a row for each conflict: its place from 1, the version in hexadecimal
 * digits and the record that the key has, or nulls.
 */
function createSwap({ table, swap }: TableNames): string {
  return `
create procedure ${swap}(
  in changes longtext character set utf8mb4,
  in next_version binary(16),
  in earliest_ms bigint,
  in latest_ms bigint
)
  modifies sql data
  sql security invoker
begin
  declare k varbinary(512);
  declare expects binary(16);
  declare new_record longtext character set utf8mb4;
  declare is_idle tinyint;
  declare keep_ms bigint;
  declare now_us bigint;
  declare is_timely tinyint;
  declare is_done tinyint default 0;
  declare letter char(1) character set ascii;
  declare letters longtext character set ascii default '';
  declare change_list cursor for
    select cast(c.lock_key as binary), unhex(c.expected), c.record, c.idle, c.keep_until_ms
    from ${CHANGES} c order by c.place;
  declare continue handler for not found set is_done = 1;
  -- Somebody has made a record of the key.
  declare continue handler for 1062 set letter = 'c';
  declare exit handler for sqlexception begin rollback; resignal; end;

  -- Fails in somebody else's transaction, instead of ending that.
  set transaction isolation level read committed;
  start transaction read write;
  -- Users with all rights may write to a replica all the same.
  if cast(@@global.read_only as char) not in ('0', 'OFF') then
    signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'The server is read-only';
  end if;
  set now_us = ${NOW_US};
  set is_timely = now_us between earliest_ms * 1000 and latest_ms * 1000;

  open change_list;
  each_change: loop
    fetch change_list into k, expects, new_record, is_idle, keep_ms;
    if is_done then leave each_change; end if;
    set letter = 'w';
    if new_record is null or not is_timely then
      if (select t.version from ${table} t where t.lock_key = k) <=> expects then
        set letter = if(new_record is null, 's', 'u');
      else
        set letter = 'c';
      end if;
    elseif expects is null then
      insert into ${table} (lock_key, version, record, idle, keep_until_ms, keep_until_second)
      values (k, next_version, new_record, is_idle, keep_ms, keep_ms div 1000);
    else
      update ${table}
      set version = next_version, record = new_record, idle = is_idle,
        keep_until_ms = keep_ms, keep_until_second = keep_ms div 1000
      where lock_key = k and version = expects;
      if row_count() <> 1 then set letter = 'c'; end if;
    end if;
    set letters = concat(letters, letter);
  end loop;
  close change_list;

  -- It may have taken long to get at the rows. Now they are ours until the commit.
  set now_us = ${NOW_US};
  if now_us > latest_ms * 1000 and locate('w', letters) > 0 then
    rollback;
    set letters = replace(letters, 'w', 'u');
    start transaction read only;
  end if;
  select letters, now_us;
  if locate('c', letters) > 0 then
    select c.place, hex(t.version), cast(t.record as binary)
    from ${CHANGES} c left join ${table} t on t.lock_key = cast(c.lock_key as binary)
    where substr(letters, c.place, 1) = 'c';
  end if;
  commit;
end`;
}

/**
 * most  how many records to remove
 *
 * Answers one row: how many were removed. They are looked for without locks, and then removed in the order of their keys, as
 * swaps lock them: so neither waits for the other in a circle. Whoever was used in between is not due any more.
 */
function createSweep({ table, sweep }: TableNames): string {
  return `
create procedure ${sweep}(in most bigint)
  modifies sql data
  sql security invoker
begin
  declare k varbinary(512);
  declare now_ms bigint;
  declare removed bigint default 0;
  declare is_done tinyint default 0;
  declare old_keys cursor for
    select o.lock_key from (
      select t.lock_key from ${table} t
      where t.keep_until_second <= now_ms div 1000 and t.keep_until_ms < now_ms
      order by t.keep_until_second
      limit most
    ) o order by o.lock_key;
  declare continue handler for not found set is_done = 1;
  declare exit handler for sqlexception begin rollback; resignal; end;

  set transaction isolation level read committed;
  start transaction read write;
  set now_ms = ${NOW_US} div 1000;
  open old_keys;
  each_key: loop
    fetch old_keys into k;
    if is_done then leave each_key; end if;
    delete from ${table} where lock_key = k and keep_until_ms < now_ms;
    set removed = removed + row_count();
  end loop;
  close old_keys;
  commit;
  select removed;
end`;
}
