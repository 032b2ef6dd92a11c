/** Tables, routines and rights: what a store in an SQL database needs at first use, and how it tells what is missing. */
import { createLocks, type Store } from "holdfast";
import { expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { failure } from "./failure.ts";

export interface SqlDatabase {
  /** A store on a pool of its own, which ends with the test. Default: of a user who may do everything. */
  open(options: { readonly table: string; readonly autoMigrate?: boolean; readonly user?: string }): Store;
  /** Makes what a store needs, on a connection of its own. */
  migrate(table: string): Promise<unknown>;
  admin(sql: string): Promise<readonly Readonly<Record<string, unknown>>[]>;
  /** The name of the function that migrates. */
  readonly migration: string;
  /** The page that lists the rights. */
  readonly page: string;
  /** The quote of names. */
  readonly quote: string;
  /** Makes a place for other tables. */
  makePlace(name: string): string;
  /** Removes a routine that the store calls, and leaves the table. */
  dropRoutine(table: string): string;
  /** Makes a user with these rights on a table, and on what the store calls for it. */
  makeUser(name: string, table: string, rights: string): readonly string[];
  /** Grants a user something more on a table. */
  grant(name: string, table: string, rights: string): readonly string[];
  /** Takes away from a user what shows it that there is a table at all, and what it calls. */
  hide(name: string, table: string): readonly string[];
}

/** The rights that the pages list. */
const DOCUMENTED = "select, insert, update, delete";

const request = claimRequest("id", { key: "key", ttlMs: 10_000, wait: false });

export function testTables(database: SqlDatabase): void {
  const { migrate, admin } = database;

  function open(options: Parameters<SqlDatabase["open"]>[0]): Store {
    const store = database.open(options);
    onTestFinished(() => store.close());
    return store;
  }

  async function makeUser(...terms: Parameters<SqlDatabase["makeUser"]>): Promise<void> {
    for (const statement of database.makeUser(...terms)) await admin(statement);
  }

  test("the error for a missing table has the remedy, and the same store works afterwards", async () => {
    const store = open({ table: "later" });
    const error = await failure(store.acquire(request));
    expect(error.code).toBe("STORE_FAILURE");
    expect(error.message).toMatch(new RegExp(`later.*run ${database.migration}`, "i"));
    const found = "select 1 from information_schema.tables where table_name = 'later'";
    expect(await admin(found)).toEqual([]);
    await migrate("later");
    await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });
  });

  test("a dropped table and a missing routine are errors, and the migration restores them", async () => {
    await migrate("half");
    const store = open({ table: "half" });
    await store.acquire(request);
    await admin("drop table half");
    expect(await failure(store.release([request]))).toMatchObject({ code: "STORE_FAILURE" });
    await migrate("half");
    await admin(database.dropRoutine("half"));
    const next = open({ table: "half" });
    const error = await failure(next.acquire(request));
    expect([error.code, error.message]).toEqual([
      "STORE_FAILURE",
      expect.stringMatching(/missing|does not exist/),
    ]);
    expect(error.message).toContain(database.migration);
    await Promise.all([1, 2, 3].map(() => migrate("half")));
    await expect(next.acquire(request)).resolves.toMatchObject({ state: "held" });
  });

  test("migrations at the same time do not fail, by hand or at first use", async () => {
    await admin(database.makePlace("elsewhere"));
    const places = [1, 2, 3, 4];
    // From the second round on, connections are open, and all of them ask at the same moment.
    for (const round of [1, 2, 3, 4, 5]) await Promise.all(places.map(() => migrate(`race_${round}`)));
    await Promise.all(
      places.map((place) =>
        open({ table: "elsewhere.my-locks", autoMigrate: true }).acquire({ ...request, key: `${place}` }),
      ),
    );
    const { quote } = database;
    const rows = await admin(`select count(*) as n from elsewhere.${quote}my-locks${quote}`);
    expect(rows.map(({ n }) => Number(n))).toEqual([places.length]);
  });

  test.each([
    ["reader", "select"],
    ["remover", "select, delete"],
  ])("missing rights of a %s are told, and nothing is written", async (user, rights) => {
    const table = `guarded_${user}`;
    await migrate(table);
    await makeUser(user, table, rights);
    const store = open({ table, user });
    const error = await failure(store.acquire(request));
    expect(error.code).toBe("UNAUTHORIZED");
    expect(error.message).toContain("rights");
    expect(error.message).toContain(database.page);
    const creating = open({ table: "own", autoMigrate: true, user });
    expect(await failure(creating.acquire(request))).toMatchObject({ code: "UNAUTHORIZED" });
    const stranger = open({ table, user: "stranger" });
    expect(await failure(stranger.acquire(request))).toMatchObject({ code: "UNAUTHORIZED" });
    expect(await admin(`select * from ${table}`)).toEqual([]);
    // To look, it has what it needs.
    expect(await store.look({ key: "key", maxClaims: 0 })).toMatchObject({ keys: [{ held: [] }] });
  });

  test("a user who cannot remove old records is refused", async () => {
    await migrate("growing");
    await makeUser("hoarder", "growing", "select, insert, update");
    const store = open({ table: "growing", user: "hoarder" });
    const error = await failure(store.acquire(request));
    expect(error.code).toBe("UNAUTHORIZED");
    expect(error.message).toContain(database.page);
    expect(await admin("select * from growing")).toEqual([]);
    for (const statement of database.grant("hoarder", "growing", "delete")) await admin(statement);
    expect(await store.acquire(request)).toMatchObject({ state: "held" });
  });

  test("the error for a hidden table says missing or hidden", async () => {
    await migrate("hidden");
    await makeUser("outsider", "hidden", DOCUMENTED);
    for (const statement of database.hide("outsider", "hidden")) await admin(statement);
    const error = await failure(open({ table: "hidden", user: "outsider" }).acquire(request));
    expect(error.code).toBe("STORE_FAILURE");
    expect(error.message).toMatch(/missing|does not exist/);
    expect(error.message).toMatch(/has no rights on them|lacks usage on it/);
    expect(error.message).toContain(database.page);
  });

  test("the migration refuses a table of another program, and creates nothing for it", async () => {
    await admin("create table foreign_one (id int)");
    const error = await failure(migrate("foreign_one"));
    expect(error.code).toBe("STORE_FAILURE");
    expect(error.message).toMatch(/choose another name/i);
    const routines = "select 1 from information_schema.routines where routine_name like 'foreign_one%'";
    expect(await admin(routines)).toEqual([]);
    const store = open({ table: "foreign_one", autoMigrate: true });
    expect(await failure(store.acquire(request))).toMatchObject({ code: "STORE_FAILURE" });
  });

  test("the documented rights are enough, and are none to migrate", async () => {
    await migrate("granted");
    await makeUser("worker", "granted", DOCUMENTED);
    const locks = createLocks(open({ table: "granted", user: "worker" }));
    const lease = await locks.mutex("key").acquire();
    const next = locks.mutex("key").acquire({ waitMs: 5_000 });
    await lease.release();
    await (await next).release();
    for await (const status of locks.list({ prefix: "" })) expect(status).toBeDefined();
    await locks.close();
    const other = open({ table: "forbidden", autoMigrate: true, user: "worker" });
    expect(await failure(other.acquire(request))).toMatchObject({ code: "UNAUTHORIZED" });
  });
}
