import { createLocks, type Store } from "holdfast";
import {
  migratePostgres,
  type PostgresStoreOptions,
  postgresMigration,
  postgresStore,
} from "holdfast/postgres";
import { Client, Pool, type PoolConfig } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { checkServer, type ServerFacts } from "../../../src/stores/postgres/readiness.ts";
import { tableNames } from "../../../src/stores/postgres/table.ts";
import { freePort } from "../../engines/engine.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { testDamagedRecords } from "../damaged-records.ts";
import { failure } from "../failure.ts";
import { testTables } from "../sql-tables.ts";

const request = claimRequest("id", { key: "key", ttlMs: 10_000, wait: false });

describe.skipIf(!canRunPostgres())("postgres: at first use", () => {
  let server: PostgresServer;
  let admin: Pool;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new Pool({ connectionString: server.url, max: 5 });
  }, 60_000);

  afterAll(async () => {
    await admin?.end();
    await server?.stop();
  });

  function poolOf(config: PoolConfig = {}): Pool {
    const pool = new Pool({ connectionString: server.url, max: 5, ...config });
    onTestFinished(() => pool.end());
    return pool;
  }

  /** Ends before the pool that it uses. */
  function open(pool: Pool | Client, options: PostgresStoreOptions): Store {
    const store = postgresStore(pool, options);
    onTestFinished(() => store.close());
    return store;
  }

  testTables({
    open: ({ user = "postgres", ...options }) =>
      postgresStore(poolOf({ connectionString: asUser(user) }), options),
    migrate: (table) => migratePostgres(admin, { table }),
    admin: async (sql) => (await admin.query(sql)).rows,
    migration: "migratePostgres",
    page: "docs/stores/postgres.md",
    quote: '"',
    makePlace: (name) => `create schema ${name}`,
    dropRoutine: (table) => `drop procedure ${tableNames(table).swap}`,
    makeUser: (name, table, rights) => [
      // Before version 15 everybody may create tables there.
      "revoke create on schema public from public",
      `create role ${name} login`,
      `grant ${rights} on ${table} to ${name}`,
    ],
    grant: (name, table, rights) => [`grant ${rights} on ${table} to ${name}`],
    // By itself everybody may look into that schema.
    hide: (name, table) => [
      "create schema closed",
      `alter table ${table} set schema closed`,
      `alter role ${name} set search_path = closed`,
    ],
  });

  test("the migration can be had as text", () => {
    expect(postgresMigration()).toContain('create table if not exists "holdfast_locks"');
  });

  test("a migration is given options, and nothing in place of them", async () => {
    const refused = /^The options of postgresMigration must be an object with table, not/;
    for (const wrong of ["locks", null, 7]) {
      expect(() => postgresMigration(wrong as never)).toThrow(refused);
      await expect(migratePostgres(admin, wrong as never)).rejects.toThrow(refused);
    }
    expect(() => postgresMigration({ tabel: "locks" } as never)).toThrow(/^tabel is not an option/);
  });

  test.each(['"; drop table "x', "ünï cödé", "Upper", "odd schema.select", "$holdfast$.a $holdfast_1$"])(
    "%s is only a name",
    async (table) => {
      const [schema, name] = table.includes(".") ? table.split(".") : [undefined, table];
      if (schema !== undefined) await admin.query(`create schema "${schema}"`);
      const store = open(poolOf(), { table, autoMigrate: true });
      await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });
      const { rows } = await admin.query("select count(*)::int as n from pg_class where relname = $1", [
        name,
      ]);
      expect(rows).toEqual([{ n: 1 }]);
    },
  );

  test("a missing schema is named in the error", async () => {
    const error = await failure(
      open(poolOf(), { table: "nowhere.locks", autoMigrate: true }).acquire(request),
    );
    expect([error.code, error.message]).toEqual([
      "STORE_FAILURE",
      expect.stringContaining("The schema in the option table is missing"),
    ]);
  });

  test("a replica that a client is led to when the table was made is an outage, and the table is not missing", async () => {
    const pool = poolOf();
    let asked = 0;
    const client = {
      async query(text: string, values?: string[]) {
        const result = await pool.query(text, values);
        if (!text.includes("as has_procedure") || ++asked !== 2) return result;
        const lagging = { read_only: true, persistence: null, has_procedure: false };
        return { rows: [{ ...result.rows[0], ...lagging }] };
      },
    };
    const store = open(client as never, { table: "led_away", autoMigrate: true, listener: false });
    expect((await failure(store.acquire(request))).code).toBe("STORE_UNAVAILABLE");
    expect(asked).toBe(2);
    await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });
  });

  test("a server that takes no writes is an outage", async () => {
    await migratePostgres(admin, { table: "frozen" });
    const readOnly = { options: "-c default_transaction_read_only=on" };
    const store = open(poolOf(readOnly), { table: "frozen", autoMigrate: true });
    const locks = createLocks(store, { requestTimeoutMs: 500, closeStore: false });
    for (const asked of [store.acquire(request), locks.mutex("k").tryAcquire()]) {
      const error = await failure(asked);
      expect([error.code, error.message]).toEqual(["STORE_UNAVAILABLE", expect.stringContaining("primary")]);
    }
    await locks.close();
    expect((await admin.query("select * from frozen")).rows).toEqual([]);
  });

  test("an isolation level in which others' changes cannot be seen is refused", async () => {
    const strict = { options: "-c default_transaction_isolation=serializable" };
    const error = await failure(
      open(poolOf(strict), { table: "strict", autoMigrate: true }).acquire(request),
    );
    expect([error.code, error.message]).toEqual(["UNSUPPORTED", expect.stringContaining("read committed")]);
  });

  test("a table that a crash would empty is refused", async () => {
    await migratePostgres(admin, { table: "fleeting" });
    await admin.query("alter table fleeting set unlogged");
    const error = await failure(open(poolOf(), { table: "fleeting" }).acquire(request));
    expect([error.code, error.message]).toEqual(["UNSUPPORTED", expect.stringContaining("set logged")]);
  });

  test("a database that cannot write every key is refused", async () => {
    await admin.query(
      "create database ascii encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'",
    );
    const pool = poolOf({ connectionString: server.url.replace(/postgres$/, "ascii") });
    const error = await failure(open(pool, { autoMigrate: true }).acquire(request));
    expect([error.code, error.message]).toEqual(["UNSUPPORTED", expect.stringContaining("UTF8")]);
  });

  testDamagedRecords({
    async put(key, record) {
      await migratePostgres(admin, { table: "damaged" });
      const insert =
        "insert into damaged values ($1, '00000000-0000-0000-0000-000000000001', $2, false, 9e15)";
      await admin.query(insert, [key, record]);
    },
    textOf: async (key) =>
      (await admin.query("select record from damaged where key = $1", [key])).rows[0]?.record,
    open: () => postgresStore(poolOf(), { table: "damaged" }),
  });

  test("a server that cannot be reached is an outage, and a pool that was ended is not", async () => {
    const port = await freePort();
    const nobody = poolOf({ connectionString: `postgres://postgres@127.0.0.1:${port}/postgres` });
    expect((await failure(open(nobody, {}).acquire(request))).code).toBe("STORE_UNAVAILABLE");

    const ended = new Pool({ connectionString: server.url });
    const store = postgresStore(ended, { table: "ended", autoMigrate: true });
    await store.acquire(request);
    await ended.end();
    const error = await failure(store.release([request]));
    expect([error.code, error.message]).toEqual(["STORE_FAILURE", expect.stringContaining("ended")]);
    await store.close();
  });

  test("a single client that is not connected, or was ended, is a failure and no outage", async () => {
    const client = new Client({ connectionString: server.url });
    const store = open(client, { table: "alone", autoMigrate: true });
    const early = await failure(store.acquire(request));
    expect(early).toMatchObject({ code: "STORE_FAILURE", message: expect.stringContaining("connect()") });
    await client.connect();
    await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });
    await client.end();
    const late = await failure(store.release([request]));
    expect(late).toMatchObject({ code: "STORE_FAILURE", message: expect.stringContaining("ended") });
  });

  test("a single client whose connection was lost is an outage", async () => {
    const client = new Client({ connectionString: server.url });
    client.on("error", () => {});
    await client.connect();
    const store = open(client, { table: "lost", autoMigrate: true });
    await store.acquire(request);
    const { rows } = await client.query("select pg_backend_pid() as pid");
    const ended = new Promise((resolve) => client.once("end", resolve));
    await admin.query("select pg_terminate_backend($1)", [rows[0].pid]);
    await ended;
    expect(await failure(store.release([request]))).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("a single client serves one request after the other, and without a word of warning", async () => {
    const warnings: Error[] = [];
    const note = (warning: Error) => warnings.push(warning);
    process.on("warning", note);
    onTestFinished(() => void process.off("warning", note));
    const client = new Client({ connectionString: server.url });
    await client.connect();
    const store = postgresStore(client, { table: "single", autoMigrate: true });
    const keys = Array.from({ length: 20 }, (_, index) => `${index}`);
    await Promise.all(keys.map((key) => store.acquire({ ...request, key })));
    // Some on their own, so that several requests are under way.
    const looks = keys.map((key) => store.look({ key, maxClaims: 1 }));
    await Promise.all([...looks, ...keys.map((key) => store.release([{ ...request, key }]))]);
    await store.close();
    await client.end();
    expect(warnings).toEqual([]);
  });

  test("a client with only query(text, values) works, also with numbers as texts", async () => {
    const pool = poolOf();
    const store = postgresStore(
      {
        async query(text, values) {
          const { rows } = await pool.query({
            text,
            values: values ?? [],
            types: { getTypeParser: () => asText },
          });
          return { rows: rows.map(mendBooleans) };
        },
      },
      { table: "wrapped" },
    );
    onTestFinished(() => store.close());
    await migratePostgres(pool, { table: "wrapped" });
    await expect(store.acquire(request)).resolves.toMatchObject({ state: "held" });
    await expect(store.release([request])).resolves.toEqual([true]);
    const wrong = postgresStore({ query: async () => [] as never }, {});
    expect((await failure(wrong.acquire(request))).message).toContain("{ rows }");
  });

  function asUser(user: string): string {
    return server.url.replace("postgres@", `${user}@`);
  }
});

const asText = (value: string | Buffer) => String(value);

function mendBooleans(row: Record<string, unknown>): Record<string, unknown> {
  const mended = Object.entries(row).map(([name, value]) => [
    name,
    value === "t" ? true : value === "f" ? false : value,
  ]);
  return Object.fromEntries(mended);
}

describe("postgres: wrong arguments", () => {
  const pool = new Pool({ max: 5 });

  test.each([
    ["nothing", undefined],
    ["null", null],
    ["an address", "postgres://127.0.0.1"],
    ["another kind of object", { execute: () => {} }],
  ])("a client must be one, not %s", (_, client) => {
    expect(() => postgresStore(client as never)).toThrow(/^client must be a Pool or a Client of pg/);
  });

  test("a pool of one connection has none to listen with", () => {
    const one = new Pool({ max: 1 });
    expect(() => postgresStore(one)).toThrow(/listener: false/);
    expect(() => postgresStore(one, { listener: false })).not.toThrow();
  });

  test.each([
    { table: "" },
    { table: "a.b.c" },
    { table: ".a" },
    { table: "a\0b" },
    { table: "x".repeat(51) },
    { table: 7 },
    { autoMigrate: "yes" },
    { listener: true },
    { maxWaiters: -1 },
    { maxConcurrentRequests: 0 },
    { keepIdleMs: 1 },
    { tabel: "misspelt" },
  ])("%j names its field", (options) => {
    const [name] = Object.keys(options);
    expect(() => postgresStore(pool, options as PostgresStoreOptions)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringMatching(`^${name} `) }),
    );
  });
});

describe("postgres: the server", () => {
  const facts: ServerFacts = {
    version: 150_004,
    server_encoding: "UTF8",
    isolation: "read committed",
    read_only: false,
    encoding: "UTF8",
    schema: "public",
    persistence: "p",
    has_procedure: true,
    may_delete: true,
    search_path: "public",
    is_own_path: true,
    elsewhere: null,
  };

  test.each([120_000, 130_012, 180_001])("of version %i is accepted", (version) => {
    expect(checkServer({ ...facts, version })).toBeUndefined();
  });

  test.each([
    ["11", "a store", { version: 110_022 }, /^PostgreSQL 11 is too old\. Upgrade .* 12 or newer/],
    ["9.6", "a store", { version: 90_624 }, /^PostgreSQL older than 10 is too old\. Upgrade .* 12 or newer/],
    ["11", "a migration", { version: 110_022 }, /Upgrade .* 12 or newer/],
    ["another encoding", "a store", { server_encoding: "LATIN1" }, /LATIN1.*UTF8/],
    ["another encoding", "a migration", { server_encoding: "LATIN1" }, /LATIN1.*UTF8/],
    ["serializable transactions", "a store", { isolation: "serializable" }, /read committed/],
  ])(
    "with %s is told so by %s that would make the table, and nothing is made",
    async (_, by, differs, message) => {
      const sent: string[] = [];
      const client = {
        async query(statement: string | { text: string }) {
          sent.push(typeof statement === "string" ? statement : statement.text);
          return { rows: [{ ...facts, persistence: null, has_procedure: false, ...differs }] };
        },
      };
      const store = postgresStore(client as never, { autoMigrate: true, listener: false });
      onTestFinished(() => store.close());
      const told = await failure(
        by === "a store" ? store.acquire(request) : migratePostgres(client as never),
      );
      expect(told).toMatchObject({ code: "UNSUPPORTED", message: expect.stringMatching(message) });
      expect(sent).toHaveLength(1);
      expect(sent[0]).toMatch(/^select/);
    },
  );
});
