/** The names of what the store keeps in the database, quoted so that any name is only a name. */
import { createHash } from "node:crypto";
import { invalid } from "../../core/index.ts";

export interface TableNames {
  /** As the user wrote it. */
  readonly given: string;
  /** For use in a statement. */
  readonly table: string;
  /** The function that swaps. Its name has a version: a release that needs another one brings it beside this one. */
  readonly swap: string;
  /** How the catalogue finds that function. */
  readonly swapSignature: string;
  /** What sessions call the statement that calls it. Others may use the same session behind a pooler, so it must mean this one alone. */
  readonly swapStatement: string;
}

/** PostgreSQL cuts a name to 63 bytes, silently. The function's is longer than the table's by a few. */
const MAX_TABLE_BYTES = 50;
const MAX_SCHEMA_BYTES = 63;

export const SWAP_PARAMETERS = [
  "change_keys text",
  "change_expects text",
  "expected_versions text",
  "change_keeps text",
  "change_records text",
  "update_count text",
  "new_version text",
  "earliest text",
  "latest text",
  "wake_numbers text",
  "wake_channels text",
  "wake_payloads text",
  "may_be_lost text",
] as const;

/** From `name` or `schema.name`. Without a schema, the `search_path` of the connection decides, as in any statement. */
export function tableNames(given: string): TableNames {
  const parts = typeof given === "string" ? given.split(".") : [];
  const [schema, name] = parts.length === 2 ? parts : [undefined, parts[0]];
  if (parts.length > 2 || !isName(name, MAX_TABLE_BYTES) || !isName(schema ?? "public", MAX_SCHEMA_BYTES)) {
    throw invalid(
      `table must be a name of 1 to ${MAX_TABLE_BYTES} bytes, or a schema and a name with a dot between them, without control characters, not ${JSON.stringify(given)}.`,
    );
  }
  const before = schema === undefined ? "" : `${quoted(schema)}.`;
  const swap = `${before}${quoted(`${name}_swap_v6`)}`;
  return {
    given,
    table: `${before}${quoted(name)}`,
    swap,
    swapSignature: `${swap}(${SWAP_PARAMETERS.map(() => "text").join(",")})`,
    swapStatement: `holdfast_${createHash("sha256").update(`${swap} with its call`).digest("hex").slice(0, 32)}`,
  };
}

function isName(name: string | undefined, maxBytes: number): name is string {
  return name !== undefined && /^[^\p{Cc}\p{Cs}]+$/u.test(name) && Buffer.byteLength(name) <= maxBytes;
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
