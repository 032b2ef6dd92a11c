/** Who may migrate, and migrate again: those whom the page of the store names. */
import { migratePostgres, postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { failure } from "../failure.ts";

const request = claimRequest("id", { key: "key", ttlMs: 10_000, wait: false });
const table = "app.locks";

describe.skipIf(!canRunPostgres())("postgres: rights to migrate", () => {
  let server: PostgresServer;
  let admin: Pool;

  beforeAll(async () => {
    server = await startPostgres();
    admin = new Pool({ connectionString: server.url, max: 2 });
    await admin.query("create schema app");
  }, 60_000);

  afterAll(async () => {
    await admin?.end();
    await server?.stop();
  });

  /** A pool of a new user who may do in the schema what the page says. */
  async function migrator(name: string): Promise<Pool> {
    await admin.query(`create role ${name} login`);
    await admin.query(`grant usage, create on schema app to ${name}`);
    const pool = new Pool({ connectionString: server.url.replace("postgres@", `${name}@`), max: 2 });
    onTestFinished(() => pool.end());
    return pool;
  }

  test("the documented ones are enough to migrate, and to repeat it as the same user; the error for others names the owner", async () => {
    const owner = await migrator("migrator");
    await migratePostgres(owner, { table });
    const store = postgresStore(owner, { table, listener: false });
    onTestFinished(() => store.close());
    await store.acquire(request);
    await migratePostgres(owner, { table });
    await expect(store.renew([request])).resolves.toMatchObject([{ state: "held" }]);

    const other = await migrator("successor");
    const error = await failure(migratePostgres(other, { table }));
    expect(error).toMatchObject({
      code: "UNAUTHORIZED",
      message: expect.stringContaining("docs/stores/postgres.md"),
      cause: { message: expect.stringContaining("must be owner of function") },
    });
    // Whoever may act for the owner may do this as well.
    await admin.query("grant migrator to successor");
    await migratePostgres(other, { table });
    await expect(store.release([request])).resolves.toEqual([true]);
  });
});
