/** The procedures that make each request one round trip. MySQL has no other way to write and to read in one. */
import { NOW_US } from "./statements.ts";
import type { TableNames } from "./table.ts";

/** Fails in a transaction of the application, before there is a handler that would roll it back. */
const NOT_IN_A_TRANSACTION = "set transaction isolation level read committed;";

/** Overrides `completion_type`, which may begin another transaction or end the connection. */
const COMMIT = "commit and no chain no release;";
const ROLLBACK = "rollback and no chain no release;";

/**
 * `set timestamp` gives a session a clock of its own, which `sysdate` does not follow by default. (1) P
 * holds a lock. (2) Q's pool has a connection whose clock is ahead. (3) Q drops P's claim as expired, and is granted.
 */
const BY_THE_CLOCK_OF_THE_SERVER = `if abs(timestampdiff(second, now(6), sysdate(6))) > 5 then
      signal sqlstate '45000' set message_text = 'The session has a clock of its own';
    end if;`;

export const IS_READ_ONLY = "cast(@@global.read_only as char) not in ('0', 'OFF')";

/** Privileged users may write to a replica. */
const NOT_ON_A_REPLICA = `if ${IS_READ_ONLY} then
      signal sqlstate 'HY000' set mysql_errno = 1290, message_text = 'The server is read-only';
    end if;`;

/**
 * first_write   a statement that writes, or an empty text
 * other_writes  more of them, each with a semicolon; all in the order of the keys' bytes
 * asked         the number of changes
 * comparison    a statement that reads all keys of the batch
 * earliest_ms   changes are made from this time of the server
 * latest_ms     until this time
 *
 * Answers one row: whether all changes are written, and the server's time in microseconds. If not, the rows of the comparison follow. The
 * statements are texts, because taking values apart inside of a procedure is slow. They run with the rights of the caller.
 */
export function createSwap({ swap }: TableNames): string {
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
      -- There may be no prepared statement yet.
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
      -- The server may have become a replica while the batch waited for rows.
      ${NOT_ON_A_REPLICA}
      -- The batch may have waited long for the rows. From here on they are locked until the commit.
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
 * Answers one row: the number of removed records. Finds them without locks, and removes them in the order of their keys, as swaps lock
 * them. Two swaps that insert a key right after its removal may deadlock; the store sends them again.
 */
export function createSweep({ rows, sweep }: TableNames): string {
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
