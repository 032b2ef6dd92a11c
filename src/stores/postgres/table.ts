/** The names of what the store keeps in the database, quoted so that any name is only a name. */
import { createHash } from "node:crypto";
import { invalid } from "../../store/index.ts";

export interface TableNames {
  /** As the user wrote it. */
  readonly given: string;
  /** The catalogue's names. The schema is undefined if the user named none. */
  readonly schema: string | undefined;
  readonly name: string;
  readonly swapName: string;
  /** For use in a statement. */
  readonly table: string;
  /** The procedure that swaps. Its name has a version: a release that needs another one brings it beside this one. */
  readonly swap: string;
  /** The function that the procedure calls for the changes. */
  readonly change: string;
  /** What sessions call the statement that calls it. Others may use the same session behind a pooler, so it must mean this one alone. */
  readonly swapStatement: string;
}

/** PostgreSQL cuts a name to 63 bytes, silently. The function's is longer than the table's by a few. */
const MAX_TABLE_BYTES = 50;
const MAX_SCHEMA_BYTES = 63;

export const SWAP_PARAMETERS = [
  "change_keys",
  "change_expects",
  "expected_versions",
  "change_keeps",
  "change_records",
  "update_count",
  "new_version",
  "earliest",
  "latest",
  "wake_numbers",
  "wake_channels",
  "wake_payloads",
] as const;

/** From `name` or `schema.name`. Without a schema, the `search_path` decides at first use, and {@link inSchema} keeps to that. */
export function tableNames(given: string): TableNames {
  const parts = typeof given === "string" ? given.split(".") : [];
  const [schema, name] = parts.length === 2 ? parts : [undefined, parts[0]];
  if (parts.length > 2 || !isName(name, MAX_TABLE_BYTES) || !isName(schema ?? "public", MAX_SCHEMA_BYTES)) {
    throw invalid(
      `table must be a name of 1 to ${MAX_TABLE_BYTES} bytes, or a schema and a name with a dot between them, without control characters, not ${JSON.stringify(given)}.`,
    );
  }
  return namesIn(schema, name, given);
}

/**
 * The same in a schema that the names did not say. Without it, a `set search_path` on a connection of the pool would lead the store to
 * another schema's table, and it would grant there what is held here.
 */
export function inSchema({ name, given }: TableNames, schema: string): TableNames {
  return namesIn(schema, name, given);
}

function namesIn(schema: string | undefined, name: string, given: string): TableNames {
  const before = schema === undefined ? "" : `${quoted(schema)}.`;
  const swapName = `${name}_swap_v7`;
  const swap = `${before}${quoted(swapName)}`;
  return {
    given,
    schema,
    name,
    swapName,
    table: `${before}${quoted(name)}`,
    swap,
    change: `${before}${quoted(`${name}_change_v7`)}`,
    swapStatement: `holdfast_${createHash("sha256").update(swap).digest("hex").slice(0, 32)}`,
  };
}

function isName(name: string | undefined, maxBytes: number): name is string {
  return name !== undefined && /^[^\p{Cc}\p{Cs}]+$/u.test(name) && Buffer.byteLength(name) <= maxBytes;
}

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Between marks that are not in it: the name of a table may have any characters. */
export function dollarQuoted(text: string): string {
  let mark = "$holdfast$";
  for (let nth = 1; text.includes(mark); nth++) mark = `$holdfast_${nth}$`;
  return `${mark}\n${text}\n${mark}`;
}

/** Backslashes mean themselves in it, however the session reads those of a plain literal. */
export function literal(text: string): string {
  return `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
}
