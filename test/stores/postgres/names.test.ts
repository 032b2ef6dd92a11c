/** Statements that sessions keep under a name, and sessions that do not. */
import { createLocks } from "holdfast";
import {
  migratePostgres,
  type PostgresClient,
  type PostgresStoreOptions,
  postgresStore,
} from "holdfast/postgres";
import { Client, Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPgBouncer, startPgBouncer } from "../../engines/pgbouncer.ts";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";

describe.skipIf(!canRunPostgres())("postgres: names of statements", () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await startPostgres();
    const pool = poolOf();
    await migratePostgres(pool);
    await pool.end();
  }, 60_000);

  afterAll(() => server?.stop());

  function poolOf(url = server.url): Pool {
    return new Pool({ connectionString: url, max: 5 });
  }

  function open(client: PostgresClient, options: PostgresStoreOptions = { listener: false }) {
    const locks = createLocks(postgresStore(client, options), { onWarning: () => {} });
    onTestFinished(() => locks.close());
    return locks;
  }

  /** A client that looks like a pool of pg, and does this first to statements with names. */
  function poolLike(onNamed: () => void) {
    const pool = poolOf();
    onTestFinished(() => pool.end());
    const texts: string[] = [];
    const client: PostgresClient & { connect(): unknown; totalCount: number } = {
      totalCount: 1,
      async connect() {
        const connection = await pool.connect();
        return {
          on() {},
          removeListener() {},
          release: () => connection.release(),
          async query(statement: string | { text: string; values: string[] }, values?: string[]) {
            if (typeof statement === "object") {
              onNamed();
              return connection.query(statement.text, statement.values);
            }
            texts.push(statement);
            return connection.query(statement, values);
          },
        };
      },
      query: () => Promise.reject(new Error("a connection is taken instead")),
    };
    return { client, swaps: () => texts.filter((text) => text.includes("_swap_")).length };
  }

  test("the swap is parsed once for a connection, and nothing else has a name", async () => {
    const client = new Client({ connectionString: server.url });
    await client.connect();
    onTestFinished(() => client.end());
    const locks = open(client);
    for (let round = 0; round < 3; round++) await locks.mutex("parsed").run(() => locks.inspect("parsed"));
    const { rows } = await client.query("select statement from pg_prepared_statements");
    expect(rows).toEqual([{ statement: expect.stringContaining('call "public"."holdfast_locks_swap_') }]);
  });

  test("a client that is not of pg is asked with a text and values alone, also when it connects", async () => {
    const pool = poolOf();
    onTestFinished(() => pool.end());
    const asked: unknown[] = [];
    const client: PostgresClient & { connect(): Promise<void> } = {
      async connect() {},
      query(text, values) {
        asked.push(text);
        return pool.query(text, values);
      },
    };
    await open(client)
      .mutex("plain")
      .run(() => {});
    expect(asked.map((text) => typeof text)).toEqual(asked.map(() => "string"));
    expect(asked).toContainEqual(expect.stringContaining("_swap_"));
  });

  test("tables do not share a name", async () => {
    const client = new Client({ connectionString: server.url });
    await client.connect();
    onTestFinished(() => client.end());
    for (const table of ["one", "other"]) {
      await open(client, { table, autoMigrate: true, listener: false }).mutex("shared").acquire();
    }
    const { rows } = await client.query("select count(*)::int as n from pg_prepared_statements");
    expect(rows).toEqual([{ n: 2 }]);
  });

  test.each(["26000", "42P05"])(
    "where a session answers %s, the statement is made without its name, and so are later ones",
    async (code) => {
      let named = 0;
      const { client, swaps } = poolLike(() => {
        named++;
        throw Object.assign(new Error("that name means nothing here"), { code });
      });
      const locks = open(client);
      const lease = await locks.mutex(`nameless ${code}`).acquire();
      expect(await lease.release()).toBe(true);
      await locks.mutex(`nameless ${code}`).acquire();
      expect([named, swaps()]).toEqual([1, 3]);
    },
  );

  test("any other answer to a statement with a name is no reason to make it again", async () => {
    let fails = true;
    const { client, swaps } = poolLike(() => {
      if (fails) throw Object.assign(new Error("a right is missing"), { code: "42501" });
    });
    const locks = open(client);
    await expect(locks.mutex("failing").tryAcquire()).rejects.toMatchObject({ code: "UNAUTHORIZED" });
    fails = false;
    await locks.mutex("failing").acquire();
    expect(swaps()).toBe(0);
  });

  test.skipIf(!canRunPgBouncer()).each([
    ["session", 15],
    ["transaction", 2],
    ["statement", 2],
  ] as const)(
    "stores that share the sessions of a pooler in %s mode all get on",
    async (mode, connections) => {
      const bouncer = await startPgBouncer(server, connections, mode);
      onTestFinished(() => bouncer.stop());
      const pools = [1, 2, 3].map(() => poolOf(bouncer.url));
      onTestFinished(async () => {
        await Promise.all(pools.map((pool) => pool.end()));
      });
      const cycles = pools.map(async (pool, nth) => {
        const locks = open(pool);
        for (let round = 0; round < 20; round++) {
          const keys = Array.from({ length: 40 }, (_, key) => locks.mutex(`bounced ${nth} ${key}`));
          const leases = await Promise.all(keys.map((key) => key.acquire()));
          expect(await Promise.all(leases.map((lease) => lease.release()))).not.toContain(false);
        }
      });
      await Promise.all(cycles);
    },
  );
});
