/** The errors of the documented SQL driver, over broken files and by the codes of SQLite. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Change } from "holdfast/cas";
import wasm from "node-sqlite3-wasm";
import { describe, expect, onTestFinished, test } from "vitest";
import { type SqliteClient, sqliteDriver } from "../../examples/driver/sqlite-driver.ts";
import { testFolder } from "../stores/file/folders.ts";

type Open = (path: string, options?: { readonly readOnly: boolean }) => SqliteClient & { close(): void };

interface NodeSqlite {
  DatabaseSync: new (
    path: string,
    options?: { readonly readOnly: boolean },
  ) => {
    exec(sql: string): void;
    prepare(sql: string): {
      run(...values: (number | string)[]): { readonly changes: number };
      all(...values: (number | string)[]): unknown[];
    };
    readonly isTransaction: boolean;
    close(): void;
  };
}

/** Absent before Node 22. */
const nodeSqlite = await import("node:sqlite" as string).then(
  (module: NodeSqlite) => module,
  () => undefined,
);

/** The first tells no codes, and the second does. */
const clients: Record<string, Open> = {
  "node-sqlite3-wasm": (path, options) => new wasm.Database(path, options),
};
if (nodeSqlite !== undefined && tellsTransactions(nodeSqlite)) {
  clients["node:sqlite"] = (path, options = { readOnly: false }) => {
    const database = new nodeSqlite.DatabaseSync(path, options);
    return {
      exec: (sql) => database.exec(sql),
      run: (sql, values) => database.prepare(sql).run(...values),
      all: (sql, values) => database.prepare(sql).all(...values),
      get inTransaction() {
        return database.isTransaction;
      },
      close: () => database.close(),
    };
  };
}

/** Its first versions do not. */
function tellsTransactions({ DatabaseSync }: NodeSqlite): boolean {
  const database = new DatabaseSync(":memory:");
  const told: boolean | undefined = database.isTransaction;
  database.close();
  return told !== undefined;
}

describe.each(Object.entries(clients))("the SQLite driver over %s", (_, connect) => {
  function open(path: string, options?: { readonly readOnly: boolean }): SqliteClient {
    const client = connect(path, options);
    onTestFinished(() => client.close());
    return client;
  }

  const newPath = () => join(testFolder(), "locks.db");

  /** A file with the table of the driver, and a record for each of these texts. */
  async function makeFile(texts: readonly string[] = []): Promise<string> {
    const path = newPath();
    const client = connect(path);
    const driver = sqliteDriver(client);
    await driver.prepare?.();
    await swap(driver, ...texts.map((text, index) => changeOf(`${index}`, text)));
    client.close();
    return path;
  }

  test("a connection that was opened for reading is told at first use", async () => {
    const client = open(await makeFile(), { readOnly: true });
    await expect(sqliteDriver(client).prepare?.()).rejects.toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining("Open it for writing"),
    });
  });

  test("a file that is not one of SQLite is a failure, and is left as it is", async () => {
    const path = newPath();
    const text = "dear diary\n".repeat(1_000);
    writeFileSync(path, text);
    const driver = sqliteDriver(open(path));
    await expect(driver.prepare?.()).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("not one of SQLite"),
    });
    expect(readFileSync(path, "utf8")).toBe(text);
  });

  test("a table that is gone is a failure, and the message says what to do", async () => {
    const client = open(newPath());
    const driver = sqliteDriver(client);
    await driver.prepare?.();
    client.exec("drop table locks");
    for (const asked of [driver.read(["key"]), swap(driver, changeOf("key"))]) {
      await expect(asked).rejects.toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining("A new store then makes the table"),
      });
    }
    const anew = sqliteDriver(client);
    await anew.prepare?.();
    expect(await swap(anew, changeOf("key"))).toMatchObject([{ state: "swapped" }]);
  });

  test("a file that others have locked is an outage, which ends with their transaction", async () => {
    const path = await makeFile();
    const [other, driver] = [open(path), sqliteDriver(open(path))];
    await driver.prepare?.();
    other.exec("begin immediate");
    await expect(swap(driver, changeOf("key"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    other.exec("rollback");
    expect(await swap(driver, changeOf("key"))).toMatchObject([{ state: "swapped" }]);
  });

  test("a bug is not taken for an outage, and leaves no transaction behind", async () => {
    const client = open(newPath());
    const driver = sqliteDriver(client);
    await driver.prepare?.();
    const nowMs = Date.now();
    const window = { earliestMs: nowMs - 60_000, latestMs: nowMs + 60_000 };
    const swapping = driver.swap({ changes: [changeOf("key"), null as unknown as Change], ...window });
    await expect(swapping).rejects.toBeInstanceOf(TypeError);
    expect(client.inTransaction).toBe(false);
    expect(await driver.read(["key"])).toMatchObject({ records: [undefined] });
  });

  test("leaves a transaction alone that the application has begun on its connection", async () => {
    const client = open(newPath());
    const driver = sqliteDriver(client);
    await driver.prepare?.();
    client.exec("create table orders (number integer)");
    client.exec("begin");
    client.exec("insert into orders values (1)");
    await expect(driver.read(["key"])).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("one of its own"),
    });
    client.exec("commit");
    expect(client.all("select number from orders", [])).toMatchObject([{ number: 1 }]);
  });
});

/** Errors that no test can cause here, in the form of the clients that report them. */
test.each([
  [{ errcode: 10 }, "STORE_UNAVAILABLE"],
  // SQLITE_IOERR_FSYNC, SQLITE_BUSY_SNAPSHOT, SQLITE_READONLY_DIRECTORY, SQLITE_CORRUPT_INDEX and SQLITE_CONSTRAINT.
  [{ errcode: 1_034 }, "STORE_UNAVAILABLE"],
  [{ errcode: 517 }, "STORE_UNAVAILABLE"],
  [{ errcode: 1_544 }, "UNAUTHORIZED"],
  [{ errcode: 779 }, "STORE_FAILURE"],
  [{ errcode: 19 }, "STORE_FAILURE"],
  [{ code: "SQLITE_BUSY" }, "STORE_UNAVAILABLE"],
  [{ code: "SQLITE_IOERR_FSYNC" }, "STORE_UNAVAILABLE"],
  [{ code: "SQLITE_READONLY_DBMOVED" }, "UNAUTHORIZED"],
  [{ code: "SQLITE_NOTADB" }, "STORE_FAILURE"],
  [{ code: "SQLITE_CONSTRAINT_CHECK" }, "STORE_FAILURE"],
])("the SQLite driver: an error with %o is %s", async (told, code) => {
  const { driver, cause } = await failingDriver(told);
  await expect(swap(driver, changeOf("key"))).rejects.toMatchObject({ code, cause });
});

test.each([{ errcode: 1 }, { code: "SQLITE_ERROR" }])(
  "the SQLite driver: an error with %o is that of a missing table only where it is missing",
  async (told) => {
    const { driver, client, cause } = await failingDriver(told);
    const failure = { code: "STORE_FAILURE", cause };
    const swapping = swap(driver, changeOf("key"));
    await expect(swapping).rejects.toMatchObject({
      ...failure,
      message: expect.stringContaining("The cause"),
    });
    client.exec("drop table locks");
    const missing = expect.stringContaining("A new store then makes the table");
    await expect(swap(driver, changeOf("key"))).rejects.toMatchObject({ ...failure, message: missing });
  },
);

/** A driver whose client fails in this way when it is to write. */
async function failingDriver(told: object) {
  const client = new wasm.Database();
  onTestFinished(() => client.close());
  await sqliteDriver(client).prepare?.();
  const cause = Object.assign(new Error("Something is wrong."), told);
  const driver = sqliteDriver({
    exec: (sql) => client.exec(sql),
    run() {
      throw cause;
    },
    all: (sql, values) => client.all(sql, values),
    get inTransaction() {
      return client.inTransaction;
    },
  });
  return { driver, client, cause };
}

async function swap(driver: ReturnType<typeof sqliteDriver>, ...changes: readonly Change[]) {
  const { nowMs } = await driver.read([]);
  const window = { earliestMs: Math.floor(nowMs) - 60_000, latestMs: Math.ceil(nowMs) + 60_000 };
  return (await driver.swap({ changes, ...window })).results;
}

function changeOf(key: string, text = "text"): Change {
  return {
    key,
    expected: undefined,
    text,
    idle: false,
    keepUntilMs: Date.now() + 86_400_000,
    dropped: [],
    wakes: [],
  };
}
