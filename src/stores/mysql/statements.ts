/**
 * The statements of the store, as whole texts.
 *
 * Whatever comes from outside goes into them in hexadecimal digits. There is nothing to escape then, so it does not matter
 * which characters the connection is set to, what `sql_mode` says about backslashes, or how the client fills in values.
 * What returns rows says how many, because the session may be set to return fewer. That does not bind procedures.
 */
import type { TableNames } from "./table.ts";

/** Microseconds since 1970. Constant within a statement, and not touched by the time zone of the session. */
export const NOW_US = "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))";

/** One row at least: time, autocommit, and if there is a record its key, version and text. */
export function readStatement({ rows }: TableNames, keys: readonly string[]): string {
  const wanted = keys.length === 0 ? "false" : `t.lock_key in (${keys.map(bytes).join(", ")})`;
  return `select ${NOW_US}, @@autocommit, t.lock_key, hex(t.version), cast(t.record as binary)
from (select 1) one left join ${rows} t on ${wanted} limit ${Math.max(keys.length, 1)}`;
}

/** Rows as of {@link readStatement}, in the order of the keys. */
export function listStatement(
  { rows }: TableNames,
  prefix: string,
  after: string | undefined,
  limit: number,
): string {
  const conditions = ["idle = 0"];
  if (prefix !== "") conditions.push(`lock_key >= ${bytes(prefix)}`, `lock_key < ${afterAll(prefix)}`);
  if (after !== undefined) conditions.push(`lock_key > ${bytes(after)}`);
  const page = `select lock_key, version, record from ${rows} where ${conditions.join(" and ")} order by lock_key limit ${limit}`;
  return `select ${NOW_US}, @@autocommit, t.lock_key, hex(t.version), cast(t.record as binary)
from (select 1) one left join (${page}) t on true order by t.lock_key limit ${Math.max(limit, 1)}`;
}

export function sweepStatement({ sweep }: TableNames, limit: number): string {
  return `call ${sweep}(${limit})`;
}

/** What every key with the prefix comes before. No text in UTF-8 has the byte 255, so there is always a next one. */
function afterAll(prefix: string): string {
  const end = Buffer.from(prefix);
  const last = end.length - 1;
  end.writeUInt8(end.readUInt8(last) + 1, last);
  return `x'${end.toString("hex")}'`;
}

/** A text as a literal of bytes. */
export function bytes(text: string): string {
  return `x'${Buffer.from(text).toString("hex")}'`;
}
