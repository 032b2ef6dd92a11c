/** Applies migrations in order, each once. */
import { type Fenced, fenceSqlite, migrateSqliteFence } from "holdfast/fencing";
import type { Database } from "node-sqlite3-wasm";

export interface Migration {
  readonly name: string;
  readonly sql: string;
}

/** Each in a transaction of its own, with the fence as its first statement. Returns the names of those that were applied. */
export async function migrate(
  database: Database,
  lease: Fenced,
  migrations: readonly Migration[],
): Promise<readonly string[]> {
  migrateSqliteFence(database);
  database.exec("create table if not exists migrations (name text primary key)");
  const applied: string[] = [];
  for (const { name, sql } of migrations) {
    if (applyOnce(database, lease, name, sql)) applied.push(name);
    // Others get a word in, as they would with a database at the other end of a network.
    await new Promise((resolve) => setImmediate(resolve));
  }
  return applied;
}

function applyOnce(database: Database, lease: Fenced, name: string, sql: string): boolean {
  database.exec("begin immediate");
  try {
    fenceSqlite(database, lease, { resource: "migrations" });
    const isNew = database.get("select 1 from migrations where name = ?", [name]) === null;
    if (isNew) {
      database.exec(sql);
      database.run("insert into migrations (name) values (?)", [name]);
    }
    database.exec("commit");
    return isNew;
  } catch (error) {
    database.exec("rollback");
    throw error;
  }
}
