/** The names of the store's objects in the database, quoted for statements. */
import { createHash } from "node:crypto";
import { invalid } from "../../store/index.ts";

export interface TableNames {
  /** As the user wrote it. */
  readonly given: string;
  /** Undefined if the user named none. */
  readonly schema: string | undefined;
  readonly name: string;
  readonly swapName: string;
  /** Quoted, like the next two. */
  readonly table: string;
  /** The procedure that swaps. */
  readonly swap: string;
  /** The function that the procedure calls for the changes. */
  readonly change: string;
  /** The name of the prepared statement. It is unique, because others may use the same session behind a pooler. */
  readonly swapStatement: string;
}

/** PostgreSQL cuts names to 63 bytes without an error, and the routines' names are longer than the table's. */
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

/** The same names in a schema. Without a schema, `set search_path` on a pooled connection would lead to another schema's table. */
export function inSchema({ name, given }: TableNames, schema: string): TableNames {
  return namesIn(schema, name, given);
}

function namesIn(schema: string | undefined, name: string, given: string): TableNames {
  const prefix = schema === undefined ? "" : `${quoted(schema)}.`;
  const swapName = `${name}_swap_v1`;
  const swap = `${prefix}${quoted(swapName)}`;
  return {
    given,
    schema,
    name,
    swapName,
    table: `${prefix}${quoted(name)}`,
    swap,
    change: `${prefix}${quoted(`${name}_change_v1`)}`,
    swapStatement: `holdfast_${createHash("sha256").update(swap).digest("hex").slice(0, 32)}`,
  };
}

function isName(name: string | undefined, maxBytes: number): name is string {
  return name !== undefined && /^[^\p{Cc}\p{Cs}]+$/u.test(name) && Buffer.byteLength(name) <= maxBytes;
}

export function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

/** Quotes with a mark that the text does not contain. */
export function dollarQuoted(text: string): string {
  let mark = "$holdfast$";
  for (let nth = 1; text.includes(mark); nth++) mark = `$holdfast_${nth}$`;
  return `${mark}\n${text}\n${mark}`;
}

/** An E literal reads backslashes the same way in every session. */
export function literal(text: string): string {
  return `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
}
