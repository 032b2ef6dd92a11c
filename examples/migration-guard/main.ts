/**
 * Several replicas start at the same moment, and each of them finds out whether the database is up to date. One migrates it at a
 * time; the others wait, and find nothing left to do.
 *
 * The replicas are clients of one lock store in this process. The database is a file of SQLite.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLocks, HoldfastError, type Locks, memoryStore } from "holdfast";
import sqlite from "node-sqlite3-wasm";
import { type Migration, migrate } from "./migrate.ts";

const REPLICAS = 3;

const migrations: readonly Migration[] = [
  { name: "001-customers", sql: "create table customers (id integer primary key, name text not null)" },
  {
    name: "002-orders",
    sql: "create table orders (id integer primary key, customer integer references customers)",
  },
  { name: "003-names", sql: "create unique index customers_name on customers (name)" },
];

const folder = mkdtempSync(join(tmpdir(), "holdfast-migration-"));
const path = join(folder, "app.db");
const store = memoryStore();

await Promise.all(Array.from({ length: REPLICAS }, (_, index) => startReplica(`replica-${index + 1}`)));

// A replica of the release before, which was held up in the middle of its own migration for longer than its lease lasted.
const former = { key: "migrations", fence: 1n };
const database = new sqlite.Database(path);
try {
  await migrate(database, former, [{ name: "000-outdated", sql: "drop table customers" }]);
  console.log("the outdated replica has changed the database");
} catch (error) {
  console.log(`the outdated replica is refused: ${HoldfastError.from(error).code}`);
}
const applied = database.all("select name from migrations order by name").map(({ name }) => name);
console.log(`applied: ${applied.join(", ")}`);
database.close();

await store.close();
rmSync(folder, { recursive: true });

async function startReplica(name: string): Promise<void> {
  const locks: Locks = createLocks(store, { application: name, closeStore: false });
  const database = new sqlite.Database(path);
  // Whoever comes later waits: it must not serve before the tables are there.
  const done = await locks.mutex("migrations").run((lease) => migrate(database, lease, migrations));
  console.log(`${name} applied ${done.length === 0 ? "nothing" : done.join(", ")}`);
  database.close();
  await locks.close();
}
