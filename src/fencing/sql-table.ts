/** The table of marks that the SQL databases share: one row for a resource, with the newest fence that has written. */
import { invalid } from "../store/index.ts";
import type { FenceTarget } from "./fence.ts";

export interface FenceTable {
  /** The table, or schema (in MySQL: database) and table with a dot between them. Default "holdfast_fence". */
  readonly table?: string;
}

/** Which row of which table. */
export interface SqlFenceOptions extends FenceTarget, FenceTable {}

const DEFAULT_TABLE = "holdfast_fence";

/** The name as it stands in a statement. Every name that is let through means the same to all databases. */
export function quotedTable(table: string = DEFAULT_TABLE, quote: '"' | "`"): string {
  const parts = typeof table === "string" ? table.split(".") : [];
  if (parts.length < 1 || parts.length > 2 || !parts.every((part) => /^[A-Za-z_][\w$]{0,62}$/.test(part))) {
    throw invalid(
      `table must be 1 to 63 letters, digits, underscores or dollars, with or without a schema and a dot before them, not ${JSON.stringify(table)}.`,
    );
  }
  return parts.map((part) => `${quote}${part}${quote}`).join(".");
}
