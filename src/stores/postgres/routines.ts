/** The procedure that the store calls, and the function that makes its changes. */
import { NOW_US, TAKES_NO_WRITES } from "./hello.ts";
import { dollarQuoted, inSchema, literal, quoted, SWAP_PARAMETERS, type TableNames } from "./table.ts";

/** Raised by the function when the time for its changes passed while it made them. */
export const TOO_LATE = "U0001";
/** Raised by the procedure in a session that others have set so. */
export const WRONG_ENCODING = "U0002";
export const WRONG_ISOLATION = "U0003";

/**
 * What needs the schema goes through `execute`: the text may be run by a migration tool, so it cannot ask first. With their schema, the
 * names mean the same table in every session, whatever its search_path and its temporary tables are.
 */
export function createRoutines(names: TableNames): string {
  if (names.schema !== undefined)
    return `${createChange(names)};\n\n${createSwap(names)};\n\n${tuneChange(names)}`;
  let mark = "@";
  while (quoted(names.name).includes(quoted(mark))) mark += "@";
  const routines = createRoutines(inSchema(names, mark));
  const text = `declare
  place text := (
    select quote_ident(nspname) from pg_namespace
    where oid = (select relnamespace from pg_class where oid = ${literal(names.table)}::regclass)
  );
begin
  execute replace(${dollarQuoted(routines)}, '${quoted(mark)}', place);
end`;
  return `do ${dollarQuoted(text)}`;
}

/**
 * Runs in a transaction of its own, or fails. (1) A connection is given back to its pool after BEGIN. (2) A grant becomes part of that
 * transaction: its caller believes in it, and no session sees it. (3) Another process is granted the lock. (4) The rollback removes the
 * first grant. A procedure can end its transaction only if nobody has begun one, so the `rollback` fails in step 2.
 */
function createSwap({ swap, change }: TableNames): string {
  const parameters = SWAP_PARAMETERS.map((name) => `${name === "new_version" ? "inout " : ""}${name} text`);
  return `create or replace procedure ${swap}(
  ${parameters.join(",\n  ")},
  inout reply text
) language plpgsql as ${dollarQuoted(`begin
  rollback;
  if pg_client_encoding() <> 'UTF8' then
    raise exception 'the session has another client_encoding' using errcode = '${WRONG_ENCODING}';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'the session has another isolation level' using errcode = '${WRONG_ISOLATION}';
  end if;
  reply := ${change}(${SWAP_PARAMETERS.join(", ")});
end`)}`;
}

/** With the server's own error for a write there, so that it is the same outage. */
const NOT_ON_A_REPLICA = `if ${TAKES_NO_WRITES} then
          raise exception 'the server takes no writes' using errcode = 'read_only_sql_transaction';
        end if;`;

/**
 * All parameters are texts, and most are lists: one line for each change, or for each wake-up. Neither keys nor records
 * contain a line feed; an empty line is a null. The version that a change expects is the number of a line of
 * `expected_versions`. When a record that is idle can be removed is written as the complement of that time, which is negative.
 *
 * Changes come in the order of the bytes of their keys. Sorting them here took a twelfth of the time of a call with 50 keys; whoever
 * sends them has them in that order as good as always.
 *
 * Replies an object in JSON. `now_us` is the time in microseconds; `untimely` is there where that was outside of the time
 * allowed, and nothing was done; `conflicts` where changes were not made because their keys have other versions: the number,
 * version and record of each.
 *
 * Where all changes are updates, as most are, one statement makes them: with 100 keys that takes half of the time. It
 * visits them in order as well, because the ways to read and to join that would not are switched off. Its plan is made once
 * for a session: for a single key, making one each time would take longer than all the rest.
 *
 * Where, besides, all expect the same version and are kept for as long, as what was asked for together mostly is, these are said once:
 * `change_expects` is empty, and `change_keeps` one line. That takes a tenth less, and a single change a fifth.
 *
 * A plan that begins with the table, and goes through the list for every row, would be slow, and kept while the table grows. On a small
 * table the planner takes it to be the cheaper one, unless pages and comparisons cost nothing; or if the version were compared without
 * regard to the list, as few rows have a given one.
 *
 * Races:
 * - Two batches with keys in common. Each takes its keys in the order of their bytes, which is the order in which it gets
 *   them, and waits for a key only while it has none that comes after it. So none waits for one that waits for it, and there
 *   is no deadlock.
 * - A key that is changed by others while a batch waits for it. The update compares the version that the row has when its
 *   turn comes, and the look at the other version is a statement of its own, which sees what was committed by then.
 *   That takes the isolation level "read committed", which the store checks at its first use.
 * - A batch that waits for a key until its time is over. The clock is read again at the end, and an error undoes it all.
 * - A connection whose commits do not wait for the disk. This transaction waits anyway.
 * - A client that is led to a replica that lags. (1) P holds a key. (2) Its pool comes to the replica, which refuses P's renewal, as it does
 *   every write. (3) The next attempt compares first, and learns a record without P's claim. (4) So that is the same, and P is told
 *   that its lease is gone. Whatever is answered without a write is refused there by the function itself.
 */
function createChange({ table, change }: TableNames): string {
  return `create or replace function ${change}(
  ${SWAP_PARAMETERS.map((name) => `${name} text`).join(",\n  ")}
) returns text language plpgsql
set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
set random_page_cost = 0 set cpu_index_tuple_cost = 0 set cpu_operator_cost = 0
as ${dollarQuoted(`declare
  now_us bigint := ${NOW_US};
  swap_version uuid := new_version;
  change record;
  made boolean;
  made_count int;
  common_keep bigint;
  found_version uuid;
  found_record text;
  lost int[];
  lost_records json[];
  expected uuid[] := string_to_array(expected_versions, E'\\n')::uuid[];
begin
  if now_us < earliest::bigint * 1000 or now_us > latest::bigint * 1000 then
    ${NOT_ON_A_REPLICA}
    return json_build_object('now_us', now_us, 'untimely', true);
  end if;
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'on', true);
  end if;
  if update_count <> '0' then
    if change_expects = '' then
      common_keep := change_keeps;
      if update_count = '1' then
        update ${table}
        set version = swap_version, record = change_records, idle = common_keep < 0, keep_until_ms = ${keepUntilMs("common_keep")}
        where key = change_keys collate "C" and version = expected[1];
      else
        ${updates(table, asked("record", "first"), "common_keep", "expected[asked.first]")};
      end if;
    else
      ${updates(table, asked("expects", "record", "keep"), "asked.keep", "expected[asked.expects]")};
    end if;
    get diagnostics made_count = row_count;
    if made_count <> update_count::int then
      -- What this batch has changed has its version, which nothing else ever has.
      select array_agg(asked.number), array_agg(json_build_array(asked.number - 1, lock.version, lock.record))
      into lost, lost_records
      from (${asked("number")}) as asked left join ${table} as lock on lock.key = asked.key
      where lock.version is distinct from swap_version;
    end if;
  else
    for change in ${asked("number", "expects", "record", "keep")} loop
      if change.record is null then
        ${NOT_ON_A_REPLICA}
        select version into found_version from ${table} where key = change.key;
        made := found_version is not distinct from expected[change.expects];
      elsif change.expects is null then
        insert into ${table} (key, version, record, idle, keep_until_ms)
        values (change.key, swap_version, change.record, change.keep < 0, ${keepUntilMs("change.keep")})
        on conflict (key) do nothing;
        made := found;
      else
        update ${table}
        set version = swap_version, record = change.record, idle = change.keep < 0, keep_until_ms = ${keepUntilMs("change.keep")}
        where key = change.key and version = expected[change.expects];
        made := found;
      end if;
      if not made then
        select version, record into found_version, found_record from ${table} where key = change.key;
        lost := lost || change.number;
        lost_records := lost_records || json_build_array(change.number - 1, found_version, found_record);
      end if;
    end loop;
  end if;
  if ${NOW_US} > latest::bigint * 1000 then
    raise exception 'the changes came too late' using errcode = '${TOO_LATE}';
  end if;
  if wake_numbers <> '' then
    perform pg_notify(wake.channel, wake.payload)
    from unnest(
      string_to_array(wake_numbers, E'\\n')::int[],
      string_to_array(wake_channels, E'\\n'),
      string_to_array(wake_payloads, E'\\n')
    ) as wake (number, channel, payload)
    where lost is null or wake.number <> all (lost);
  end if;
  if lost is null then
    return '{"now_us":' || now_us || '}';
  end if;
  return json_build_object('now_us', now_us, 'conflicts', array_to_json(lost_records));
end`)}`;
}

function updates(table: string, rows: string, keep: string, expected: string): string {
  return `update ${table} as lock
      set version = swap_version, record = asked.record, idle = ${keep} < 0, keep_until_ms = ${keepUntilMs(keep)}
      from (${rows}) as asked
      where lock.key = asked.key and lock.version = ${expected}`;
}

const columns = {
  number: `generate_subscripts(string_to_array(change_keys, E'\\n'), 1)`,
  expects: `unnest(string_to_array(change_expects, E'\\n', '')::int[])`,
  record: `unnest(string_to_array(change_records, E'\\n', ''))`,
  keep: `unnest(string_to_array(change_keeps, E'\\n')::bigint[])`,
  first: "1",
};

/**
 * The changes as rows, in the order in which they came: their keys, and what else is needed of them. The lists are taken
 * apart side by side in the select list: in its from clause, each of them would be stored first.
 */
function asked(...names: readonly (keyof typeof columns)[]): string {
  const others = names.map((name) => `,\n  ${columns[name]} as ${name}`);
  return `select\n  unnest(string_to_array(change_keys collate "C", E'\\n')) as key${others.join("")}`;
}

function keepUntilMs(keep: string): string {
  return `greatest(${keep}, ~${keep})`;
}

/** From PostgreSQL 14 on, a plan may remember rows that it comes back to. This one never does, and remembering takes a tenth of its time. */
function tuneChange({ change }: TableNames): string {
  return `do ${dollarQuoted(`begin
  if current_setting('server_version_num')::int >= 140000 then
    alter function ${change} set enable_memoize = off;
  end if;
end`)}`;
}
