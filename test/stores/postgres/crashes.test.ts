/** What is left of what was confirmed when the server crashes: all of it, but for releases of the last moment. */
import { type ClaimRequest, createLocks, type Store } from "holdfast";
import { migratePostgres, postgresStore } from "holdfast/postgres";
import { Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { canRunPostgres, type PostgresServer, startPostgres } from "../../engines/postgres.ts";
import { claimRequest } from "../../record/claim-request.ts";

const TTL_MS = 2_000;
/** Longer than a crash takes, and short enough for a release to be forgotten. */
const LONG_TTL_MS = 30_000;
const LOCKS = 10;
const MAX_CRASHES = 10;

describe.skipIf(!canRunPostgres())("postgres: crashes", { timeout: 60_000 }, () => {
  let server: PostgresServer;

  beforeAll(async () => {
    // What waits for no disk stays in memory for as long as it may, so that there is something to be lost.
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

  function requests(name: string, ttlMs: number): ClaimRequest[] {
    return Array.from({ length: LOCKS }, (_, nth) =>
      claimRequest(`${name}-${nth}`, { key: `${name}-${nth}`, ttlMs }),
    );
  }

  async function crash(): Promise<void> {
    await server.kill();
    await server.restart();
  }

  test("a lock that was given back may be taken again, by the same claim, until that ends; the next one's fence is higher", async () => {
    let lost = 0;
    for (let round = 0; round < MAX_CRASHES && lost === 0; round++) {
      const before = open();
      const given = requests(`given-${round}`, TTL_MS);
      const fences = await Promise.all(given.map((request) => take(before, request)));
      expect(await before.release(given)).toEqual(given.map(() => true));
      await crash();
      const after = open();
      const found = await Promise.all(given.map(({ key }) => heldWith(after, key)));
      for (const [nth, fence] of found.entries()) {
        if (fence === undefined) continue;
        lost++;
        expect(fence).toBe(fences[nth]);
      }
      // Whoever comes next waits for no longer than the ttl, and is told apart from the one before.
      const locks = createLocks(after);
      const leases = await Promise.all(given.map(({ key }) => locks.mutex(key).acquire()));
      for (const [nth, lease] of leases.entries()) expect(lease.fence).toBeGreaterThan(fences[nth]!);
      await Promise.all(leases.map((lease) => lease.release()));
    }
    // Or the server keeps more than it has to, and the rest was not put to the test.
    expect(lost).toBeGreaterThan(0);
  });

  test("what is granted after a release is there with all that came before it", async () => {
    const before = open();
    const [first, second] = [requests("first", LONG_TTL_MS), requests("second", LONG_TTL_MS)];
    await Promise.all(first.map((request) => take(before, request)));
    await before.release(first);
    const again = first.map((request) => ({ ...request, id: "again", token: "again" }));
    const fences = await Promise.all([...again, ...second].map((request) => take(before, request)));
    await crash();
    const after = open();
    const found = await Promise.all([...again, ...second].map(({ key }) => heldWith(after, key)));
    expect(found).toEqual(fences);
  });

  test("a lock that a release has passed on to the next in line is theirs", async () => {
    const before = open();
    const [holders, waiters] = [requests("passed", LONG_TTL_MS), requests("passed", LONG_TTL_MS)].map(
      (all, nth) => all.map((request) => ({ ...request, id: `${request.id}-${nth}`, token: `${nth}` })),
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

  test.each([
    { what: "by force", ttlMs: TTL_MS, refOf: ({ key, id }: ClaimRequest) => ({ key, id }) },
    { what: "long before its end", ttlMs: 120_000, refOf: (request: ClaimRequest) => request },
  ])("a lock that was freed $what stays free", async ({ what, ttlMs, refOf }) => {
    const before = open();
    const freed = requests(`freed ${what}`, ttlMs);
    await Promise.all(freed.map((request) => take(before, request)));
    expect(await before.release(freed.map(refOf))).toEqual(freed.map(() => true));
    await crash();
    const after = open();
    const found = await Promise.all(freed.map(({ key }) => heldWith(after, key)));
    expect(found).toEqual(freed.map(() => undefined));
  });
});
