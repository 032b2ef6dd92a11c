/** The procedure that the store calls, and the function that makes its changes. */
import { WRONG_ENCODING, WRONG_ISOLATION } from "./errors.ts";
import { NOW_US, TAKES_NO_WRITES } from "./readiness.ts";
import { dollarQuoted, inSchema, literal, quoted, SWAP_PARAMETERS, type TableNames } from "./table.ts";

/** Raised by the function when the time for its changes passed while it made them. */
export const TOO_LATE = "U0001";

/**
 * A migration tool runs this text, so it cannot ask for the schema first: `execute` adds it. With a schema, the names mean the same table
 * in every session, also with another search_path or a temporary table.
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
 * first grant. A procedure can end its transaction only if it began it, so the `rollback` fails in step 2.
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

/** Raises the server's own error for a write on a replica, so that both count as the same outage. */
const NOT_ON_A_REPLICA = `if ${TAKES_NO_WRITES} then
          raise exception 'the server takes no writes' using errcode = 'read_only_sql_transaction';
        end if;`;

/**
 * Parameters are texts. Most are lists with one line for each change or wake-up; an empty line is a null. Neither keys nor records
 * contain a line feed. Changes come in the order of the bytes of their keys. The version that a change expects is the number of a line of
 * `expected_versions`. For an idle record, `change_keeps` has the complement of the time, which is negative.
 *
 * Replies an object in JSON: `now_us`, the time in microseconds; `untimely` if that is outside of the allowed time, and nothing was
 * done; `conflicts`, the index, version and record of each change whose key has another version.
 *
 * If all changes are updates, one statement makes them, in half of the time for 100 keys. If they also have the version and the keep in
 * common, `change_expects` is empty, and `change_keeps` has one line. Without that, a hundred callers make 0.72 of the cycles.
 *
 * The settings of the function rule out plans that visit the keys in another order, and plans that scan the table, which the planner
 * prefers while the table is small.
 *
 * Races:
 * - Two batches with keys in common. Each locks its keys in the order of their bytes, so there is no deadlock.
 * - A key changes while a batch waits for it. The update compares the version that the row has afterwards, and the look at the other
 *   version is a new statement, which sees all commits until then. Both need the isolation level "read committed".
 * - A batch waits for a key until its time is over. The clock is read again at the end, and an error undoes all changes.
 * - A connection whose commits do not wait for the disk. This transaction waits anyway.
 * - A pool that leads to a replica that lags. (1) P holds a key. (2) The replica refuses P's renewal. (3) The next attempt only compares,
 *   and sees a record without P's claim. (4) P learns that its lease is gone. So comparing fails on a replica as well.
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
      -- Only the rows that this batch has changed have its version.
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

/** The changes as rows, in their order, with these columns. A from clause would store each list before it is read. */
function asked(...names: readonly (keyof typeof columns)[]): string {
  const others = names.map((name) => `,\n  ${columns[name]} as ${name}`);
  return `select\n  unnest(string_to_array(change_keys collate "C", E'\\n')) as key${others.join("")}`;
}

function keepUntilMs(keep: string): string {
  return `greatest(${keep}, ~${keep})`;
}

/** PostgreSQL 14 and newer may remember rows for later visits. There are none, and remembering takes a tenth of the time. */
function tuneChange({ change }: TableNames): string {
  return `do ${dollarQuoted(`begin
  if current_setting('server_version_num')::int >= 140000 then
    alter function ${change} set enable_memoize = off;
  end if;
end`)}`;
}
