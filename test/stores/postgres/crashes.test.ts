/** A crash of the server loses nothing that was confirmed. */
import type { ClaimRequest, Store } from "holdfast";
import { migratePostgres, postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { claimRequest } from "../../record/claim-request.ts";

/** Longer than a crash takes. */
const TTL_MS = 30_000;
const LOCKS = 10;

describe.skipIf(!canRunPostgres())("postgres: crashes", { timeout: 60_000 }, () => {
  let server: PostgresServer;

  beforeAll(async () => {
    // A commit that does not wait for the disk would stay in memory for this long.
    server = await startPostgres({ settings: { wal_writer_delay: "10s", autovacuum: "off" } });
    const pool = new Pool({ connectionString: server.url });
    await migratePostgres(pool);
    await pool.end();
  }, 60_000);

  afterAll(() => server?.stop());

  function open(): Store {
    const pool = new Pool({ connectionString: server.url, max: 4 });
    // Connections that break while nobody uses them.
    pool.on("error", () => {});
    const store = postgresStore(pool, { listener: false });
    onTestFinished(async () => {
      await store.close();
      await pool.end();
    });
    return store;
  }

  async function take(store: Store, request: ClaimRequest): Promise<bigint> {
    const answer = await store.acquire(request);
    if (answer.state !== "held") throw new Error(`${request.key} was not granted: ${answer.state}`);
    return answer.fence;
  }

  /** The fence that a key is held with. */
  async function heldWith(store: Store, key: string): Promise<bigint | undefined> {
    const { keys } = await store.look({ key, maxClaims: 10 });
    return keys[0]?.held[0]?.fence;
  }

  function requests(name: string): ClaimRequest[] {
    return Array.from({ length: LOCKS }, (_, nth) =>
      claimRequest(`${name}-${nth}`, { key: `${name}-${nth}`, ttlMs: TTL_MS }),
    );
  }

  async function crash(): Promise<void> {
    await server.kill();
    await server.restart();
  }

  test("a lock that was released stays free, with its fence", async () => {
    const before = open();
    const given = requests("given");
    const fences = await Promise.all(given.map((request) => take(before, request)));
    expect(await before.release(given)).toEqual(given.map(() => true));
    await crash();
    const after = open();
    const next = await Promise.all(given.map((request) => take(after, { ...request, id: "next" })));
    for (const [nth, fence] of next.entries()) expect(fence).toBeGreaterThan(fences[nth]!);
  });

  test("a grant after a release stays", async () => {
    const before = open();
    const [first, second] = [requests("first"), requests("second")];
    await Promise.all(first.map((request) => take(before, request)));
    await before.release(first);
    const again = first.map((request) => ({ ...request, id: "again", token: "again" }));
    const fences = await Promise.all([...again, ...second].map((request) => take(before, request)));
    await crash();
    const after = open();
    const found = await Promise.all([...again, ...second].map(({ key }) => heldWith(after, key)));
    expect(found).toEqual(fences);
  });

  test("a grant that a release made to the next in line stays", async () => {
    const before = open();
    const [holders, waiters] = [requests("passed"), requests("passed")].map((all, nth) =>
      all.map((request) => ({ ...request, id: `${request.id}-${nth}`, token: `${nth}` })),
    ) as [ClaimRequest[], ClaimRequest[]];
    const fences = await Promise.all(holders.map((request) => take(before, request)));
    await Promise.all(waiters.map((request) => before.acquire(request)));
    await before.release(holders);
    await crash();
    const after = open();
    const answers = await after.renew(waiters);
    for (const [nth, answer] of answers.entries()) {
      expect(answer).toMatchObject({ state: "held" });
      expect(answer.state === "held" && answer.fence > fences[nth]!).toBe(true);
    }
  });
});
