/** The tables of the application, and the statements on them. */
import type { Database } from "node-sqlite3-wasm";

export interface Message {
  readonly id: number;
  readonly body: string;
}

export function migrate(database: Database): void {
  database.exec(`
    create table if not exists orders (id integer primary key, item text not null);
    create table if not exists outbox (id integer primary key, body text not null, sent_by text);
  `);
}

/** An order and the message about it: both or none. */
export function placeOrder(database: Database, item: string): void {
  inTransaction(database, () => {
    database.run("insert into orders (item) values (?)", [item]);
    database.run("insert into outbox (body) values (?)", [`ordered ${item}`]);
  });
}

/** The oldest messages that nobody has marked as sent. */
export function unsent(database: Database, limit: number): readonly Message[] {
  const rows = database.all("select id, body from outbox where sent_by is null order by id limit ?", [limit]);
  return rows as unknown as readonly Message[];
}

export function markSent(database: Database, id: number, fence: bigint): void {
  database.run("update outbox set sent_by = ? where id = ?", [String(fence), id]);
}

export function inTransaction(database: Database, body: () => void): void {
  database.exec("begin immediate");
  try {
    body();
    database.exec("commit");
  } catch (error) {
    database.exec("rollback");
    throw error;
  }
}
