/** A driver for SQLite: what one in SQL looks like. The processes of one machine share a file, and its clock is that of the machine. */
import { randomUUID } from "node:crypto";
import { HoldfastError } from "holdfast";
import type { CasDriver, Change, ChangeResult, ListedRecord, StoredRecord, SwapBatch } from "holdfast/cas";
import { sqliteError, writeNothing } from "./sqlite-errors.ts";

/** What the driver needs of a client, as `node-sqlite3-wasm` has it. */
export interface SqliteClient {
  exec(sql: string): void;
  run(sql: string, values: (number | string)[]): { readonly changes: number };
  all(sql: string, values: (number | string)[]): readonly unknown[];
  readonly inTransaction: boolean;
}

/** A primary key decides who makes a record. Texts are compared byte by byte here; elsewhere that takes a collation. */
const migration = `
create table if not exists locks (
  key text primary key,
  version text not null,
  text text not null,
  idle integer not null,
  keep_until_ms integer not null
) without rowid;
create index if not exists locks_by_end on locks (keep_until_ms)`;

const now = "select cast((julianday('now') - 2440587.5) * 86400000 as integer) as nowMs";
const find = "select version, text from locks where key = ?";
const insert = `insert into locks (version, text, idle, keep_until_ms, key) values (?, ?, ?, ?, ?)
on conflict (key) do nothing`;
const update =
  "update locks set version = ?, text = ?, idle = ?, keep_until_ms = ? where key = ? and version = ?";
const list =
  "select key, text from locks where key > ? and key between ? and ? and not idle order by key limit ?";
const sweep =
  "delete from locks where key in (select key from locks where keep_until_ms < ? order by keep_until_ms limit ?)";

/** No key that begins with a prefix comes after the prefix with these: as many of the last of all characters as fit into a key. */
const LAST_CHARACTERS = "\u{10FFFF}".repeat(128);

export function sqliteDriver(client: SqliteClient): CasDriver {
  /** Nobody else writes meanwhile, so nothing is waited for between a look at the clock and the write. */
  function transact<T>(work: (nowMs: number) => T): T {
    // What the application undoes would be undone with it, after it was confirmed.
    if (client.inTransaction) throw inTransactionError();
    try {
      client.exec("begin immediate");
      const [clock] = client.all(now, []) as [{ readonly nowMs: number }];
      const result = work(clock.nowMs);
      client.exec("commit");
      return result;
    } catch (error) {
      undo();
      throw sqliteError(error, client);
    }
  }

  function undo(): void {
    try {
      // After some errors, SQLite has undone it already.
      if (client.inTransaction) client.exec("rollback");
    } catch {
      // The first error says more.
    }
  }

  function recordOf(key: string): StoredRecord | undefined {
    return client.all(find, [key])[0] as StoredRecord | undefined;
  }

  function make(change: Change, { earliestMs, latestMs }: SwapBatch, nowMs: number): ChangeResult {
    const { key, expected, text, idle, keepUntilMs } = change;
    if (text !== undefined && nowMs >= earliestMs && nowMs <= latestMs) {
      const version = randomUUID();
      const values = [version, text, idle ? 1 : 0, keepUntilMs, key];
      const { changes } =
        expected === undefined
          ? client.run(insert, values)
          : client.run(update, [...values, String(expected)]);
      if (changes === 1) return { state: "swapped", version };
    }
    const current = recordOf(key);
    if (current?.version !== expected) return { state: "conflict", current };
    return { state: text === undefined ? "same" : "untimely" };
  }

  return {
    name: "sqlite",
    durability: "local",
    checksTime: true,
    async prepare() {
      transact(() => {
        client.exec(migration);
        // Missing rights are told at first use, and not by the first lock that somebody takes.
        client.exec(writeNothing);
      });
    },
    async read(keys) {
      return transact((nowMs) => ({ nowMs, records: keys.map(recordOf) }));
    },
    async swap(batch) {
      return transact((nowMs) => ({
        nowMs,
        results: batch.changes.map((change) => make(change, batch, nowMs)),
      }));
    },
    async list(prefix, after, limit) {
      return transact((nowMs) => {
        const values = [after ?? "", prefix, prefix + LAST_CHARACTERS, limit];
        return { nowMs, records: client.all(list, values) as ListedRecord[] };
      });
    },
    async sweep(limit) {
      return transact((nowMs) => client.run(sweep, [nowMs, limit]).changes);
    },
  };
}

function inTransactionError(): HoldfastError {
  return new HoldfastError(
    "STORE_FAILURE",
    "The connection is inside a transaction of the application. Give the store one of its own.",
  );
}
