import { join } from "node:path";
import { createLocks } from "holdfast";
import {
  fenceSqlite,
  MAX_FENCE,
  migrateSqliteFence,
  type PreparingDatabase,
  type SqliteDatabase,
} from "holdfast/fencing";
import wasm from "node-sqlite3-wasm";
import { describe, expect, onTestFinished, test } from "vitest";
import { testFolder } from "../stores/file/folders.ts";
import { checkRegister } from "./register-model.ts";

/** The methods of a database that the tests use besides the guard's. */
interface TestDatabase {
  readonly database: SqliteDatabase;
  run(sql: string): void;
  all(sql: string): readonly unknown[];
}

type Open = (path: string) => TestDatabase;

function openWasm(path: string): TestDatabase {
  const database = new wasm.Database(path);
  onTestFinished(() => database.close());
  return { database, run: (sql) => database.exec(sql), all: (sql) => database.all(sql) };
}

interface NodeSqlite {
  DatabaseSync: new (path: string) => PreparingDatabase & { close(): void };
}

/** Absent before Node 22. */
const nodeSqlite = await import("node:sqlite" as string).then(
  (module: NodeSqlite) => module,
  () => undefined,
);

const drivers: Record<string, Open> = {
  "node-sqlite3-wasm": openWasm,
  // The methods of better-sqlite3, for which no binary may be here: statements that are prepared, values one by one.
  "the shape of better-sqlite3": (path) => {
    const opened = openWasm(path);
    const inner = opened.database as wasm.Database;
    const database: PreparingDatabase = {
      exec: (sql) => inner.exec(sql),
      prepare: (sql) => ({
        run: (...values) => inner.run(sql, values),
        get: (...values) => inner.get(sql, values),
      }),
      get inTransaction() {
        return inner.inTransaction;
      },
    };
    return { ...opened, database };
  },
  // As node:sqlite before it told of transactions.
  "a database that does not tell of transactions": (path) => {
    const opened = openWasm(path);
    const inner = opened.database as wasm.Database;
    const prepare = (sql: string) => ({
      run: (...values: string[]) => inner.run(sql, values),
      get: (...values: string[]) => inner.get(sql, values),
    });
    return { ...opened, database: { exec: (sql: string) => inner.exec(sql), prepare } };
  },
};
if (nodeSqlite !== undefined) {
  drivers["node:sqlite"] = (path) => {
    const database = new nodeSqlite.DatabaseSync(path);
    onTestFinished(() => database.close());
    return {
      database,
      run: (sql) => void database.exec(sql),
      all: (sql) => (database.prepare(sql) as unknown as { all(): unknown[] }).all(),
    };
  };
}

describe.each(Object.entries(drivers))("sqlite through %s: fenced transactions", (_, open) => {
  function newDatabase(): TestDatabase & { path: string } {
    const path = join(testFolder(), "test.db");
    const opened = open(path);
    migrateSqliteFence(opened.database);
    migrateSqliteFence(opened.database);
    opened.run("create table register (id integer primary key, fence text, value text)");
    return { ...opened, path };
  }

  function write(to: TestDatabase, fence: bigint, value: string, end = "commit"): void {
    to.run("begin immediate");
    try {
      fenceSqlite(to.database, { fence }, { resource: "ledger" });
      to.run(`insert into register (fence, value) values ('${fence}', '${value}')`);
      to.run(end);
    } catch (error) {
      to.run("rollback");
      throw error;
    }
  }

  test("the same holder writes many times, a newer one takes over, and the older one is refused", () => {
    const opened = newDatabase();
    for (const value of ["a", "b"]) write(opened, 5n, value);
    write(opened, 6n, "c");
    expect(() => write(opened, 5n, "d")).toThrow(
      expect.objectContaining({ code: "STALE_FENCE", key: "ledger", fence: 5n, mark: 6n }),
    );
    write(opened, 6n, "e");
    expect(opened.all("select value from register order by id")).toEqual(
      ["a", "b", "c", "e"].map((value) => ({ value })),
    );
  });

  test("a newer one that rolls back leaves no mark", () => {
    const opened = newDatabase();
    write(opened, 6n, "undone", "rollback");
    write(opened, 5n, "kept");
    expect(opened.all("select value from register")).toEqual([{ value: "kept" }]);
  });

  test("of two connections, one that began before the other's commit does not pass by its snapshot", () => {
    const first = newDatabase();
    write(first, 4n, "before");
    const second = open(first.path);
    first.run("begin");
    first.all("select * from register");
    // SQLite lets only one of the two get through: the reader is refused as busy, or the writer is.
    let newer = "written";
    try {
      write(second, 6n, "newer");
    } catch {
      newer = "busy";
    }
    const older = () => fenceSqlite(first.database, { fence: 5n }, { resource: "ledger" });
    if (newer === "written") {
      expect(older).toThrow();
    } else {
      older();
    }
    first.run("rollback");
    if (newer === "busy") write(second, 6n, "newer");
    expect(() => write(first, 5n, "older")).toThrow(expect.objectContaining({ code: "STALE_FENCE" }));
  });

  test("while a newer one is at it, the older one cannot begin to write", () => {
    const newer = newDatabase();
    const older = open(newer.path);
    newer.run("begin immediate");
    fenceSqlite(newer.database, { fence: 6n }, { resource: "ledger" });
    expect(() => older.run("begin immediate")).toThrow();
    newer.run("commit");
    expect(() => write(older, 5n, "older")).toThrow(expect.objectContaining({ code: "STALE_FENCE" }));
  });

  test("fences are compared to the last digit, up to the highest", () => {
    const opened = newDatabase();
    write(opened, 2n ** 53n + 1n, "a");
    expect(() => write(opened, 2n ** 53n, "b")).toThrow(
      expect.objectContaining({ code: "STALE_FENCE", mark: 2n ** 53n + 1n }),
    );
    write(opened, MAX_FENCE, "c");
    expect(() => write(opened, MAX_FENCE - 1n, "d")).toThrow(
      expect.objectContaining({ code: "STALE_FENCE", mark: MAX_FENCE }),
    );
    write(opened, MAX_FENCE, "e");
  });

  test("without a transaction it is refused, and changes nothing", () => {
    const opened = newDatabase();
    expect(() => fenceSqlite(opened.database, { fence: 5n, key: "a" })).toThrow(
      expect.objectContaining({
        code: "INVALID_ARGUMENT",
        message: expect.stringContaining("begin immediate"),
      }),
    );
    expect(opened.all("select * from holdfast_fence")).toEqual([]);
    write(opened, 1n, "a");
  });

  test("a missing table is told, and another one can be named", () => {
    const opened = newDatabase();
    const fence = () => fenceSqlite(opened.database, { fence: 5n, key: "a" }, { table: "marks" });
    opened.run("begin immediate");
    expect(fence).toThrow(
      expect.objectContaining({
        code: "STORE_FAILURE",
        message: expect.stringContaining("migrateSqliteFence"),
      }),
    );
    opened.run("rollback");
    migrateSqliteFence(opened.database, { table: "marks" });
    opened.run("begin immediate");
    fence();
    opened.run("commit");
    expect(opened.all("select resource, fence from marks")).toEqual([{ resource: "a", fence: 5 }]);
  });

  test("writers in any order agree with the model", async () => {
    const opened = newDatabase();
    opened.run("create table history (id integer primary key, resource text, fence text, value text)");
    await checkRegister({
      runs: 40,
      rollsBack: true,
      async write({ resource, fence, value, rollsBack }) {
        opened.run("begin immediate");
        try {
          fenceSqlite(opened.database, { fence }, { resource });
          opened.run(
            `insert into history (resource, fence, value) values ('${resource}', '${fence}', '${value}')`,
          );
          opened.run(rollsBack ? "rollback" : "commit");
        } catch (error) {
          opened.run("rollback");
          throw error;
        }
      },
      async written(resource) {
        const rows = opened.all(
          `select fence, value from history where resource = '${resource}' order by id`,
        );
        return (rows as { fence: string; value: string }[]).map(({ fence, value }) => ({
          fence: BigInt(fence),
          value,
        }));
      },
    });
  });
});

test("sqlite: a lease that is known to be lost is refused before anything is run", async () => {
  const locks = createLocks();
  const lease = await locks.mutex("ledger").acquire();
  await locks.close();
  const run = () => expect.fail("It was run.");
  const database = { exec: run, run, get: run, inTransaction: true };
  expect(() => fenceSqlite(database, lease)).toThrow(expect.objectContaining({ code: "LEASE_LOST" }));
});

test.each([
  null,
  {},
  { exec: () => {} },
  { exec: () => {}, run: () => {}, get: () => {}, prepare: () => {} },
])("sqlite: %o is refused as a database", (database) => {
  expect(() => fenceSqlite(database as never, { fence: 5n, key: "a" })).toThrow(
    expect.objectContaining({ code: "INVALID_ARGUMENT" }),
  );
});
