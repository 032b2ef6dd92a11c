/** Failovers: a standby answers nothing, be it ever so ready to, and goes on from what it has when it is the primary. */
import { type ClaimRequest, createLocks, type HeldAnswer, type Store, systemClock } from "holdfast";
import { migratePostgres, postgresStore } from "holdfast/postgres";
import { Client, Pool } from "pg";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import {
  canRunPostgres,
  type PostgresServer,
  type PostgresStandby,
  startPostgres,
  startPostgresStandby,
} from "../../engines/postgres.ts";
import { type NetworkProxy, startProxy } from "../../engines/proxy.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { failure } from "../failure.ts";
import { anyTime, changeOf, newDriver } from "./new-driver.ts";

const ttlMs = 60_000;
/** Longer than the time of a server is reckoned with, so that the next call reads first. */
const SILENCE_MS = 61_000;

describe.skipIf(!canRunPostgres())("postgres: a standby", { timeout: 40_000 }, () => {
  let primary: PostgresServer;
  let standby: PostgresStandby;
  /** What standbys stream through, so that they can be made to lag. */
  let stream: NetworkProxy;
  /** What pools know the primary by. */
  let address: NetworkProxy;

  beforeAll(async () => {
    primary = await startPostgres();
    const pool = poolTo(primary.port);
    await migratePostgres(pool);
    await pool.end();
    stream = await startProxy(primary.port);
    address = await startProxy(primary.port);
    standby = await startPostgresStandby(primary, standbyOptions());
  }, 60_000);

  afterAll(async () => {
    await address?.stop();
    await stream?.stop();
    await standby?.stop();
    await primary?.stop();
  });

  function standbyOptions() {
    const settings = { cluster_name: "heir", wal_retrieve_retry_interval: "100ms" };
    return { port: stream.port, settings };
  }

  function poolTo(port: number): Pool {
    const pool = new Pool({ connectionString: `postgres://postgres@127.0.0.1:${port}/postgres`, max: 4 });
    // Connections that break while nobody uses them.
    pool.on("error", () => {});
    return pool;
  }

  function open(): Store {
    const pool = poolTo(address.port);
    const store = postgresStore(pool);
    onTestFinished(async () => {
      await store.close();
      await pool.end();
    });
    return store;
  }

  async function take(store: Store, request: ClaimRequest): Promise<HeldAnswer> {
    const answer = await store.acquire(request);
    if (answer.state !== "held") throw new Error(`${request.key} was not granted: ${answer.state}`);
    return answer;
  }

  const mine = (key: string) => claimRequest("mine", { key, ttlMs, wait: false });
  const theirs = (key: string) => claimRequest("theirs", { key, ttlMs, wait: false });

  test("is refused at first use, with what to do about it", async () => {
    const pool = poolTo(standby.port);
    onTestFinished(() => pool.end());
    // One that lags may lack the table, which is no reason to say that nobody has made it.
    for (const options of [{}, { table: "unheard_of" }, { table: "unheard_of", autoMigrate: true }]) {
      const store = postgresStore(pool, options);
      onTestFinished(() => store.close());
      expect(await failure(store.acquire(mine("first")))).toMatchObject(outage);
    }
    expect(await failure(migratePostgres(pool, { table: "others" }))).toMatchObject(outage);
  });

  // Its heartbeat fails with 25006, and a later comparison would meet an old record without the claim.
  test("and a session that has become read only are the same: nothing is answered there", async () => {
    const client = new Client({ connectionString: primary.url });
    await client.connect();
    const driver = await newDriver(client, { listens: false });
    onTestFinished(async () => {
      await driver.close?.();
      await client.end();
    });
    const { results } = await driver.swap(anyTime([changeOf("frozen", undefined, "one")]));
    const version = results[0]?.state === "swapped" ? results[0].version : undefined;
    await client.query("set default_transaction_read_only = on");
    const future = { earliestMs: Date.now() + 60_000, latestMs: Date.now() + 120_000 };
    const asked: Readonly<Record<string, () => Promise<unknown>>> = {
      comparison: () => driver.swap(anyTime([changeOf("frozen", version, undefined)])),
      conflict: () => driver.swap(anyTime([changeOf("frozen", undefined, undefined)])),
      absent: () => driver.swap(anyTime([changeOf("absent", undefined, undefined)])),
      update: () => driver.swap(anyTime([changeOf("frozen", version, "two")])),
      insert: () => driver.swap(anyTime([changeOf("frozen", undefined, "two")])),
      untimely: () => driver.swap({ changes: [changeOf("frozen", version, "two")], ...future }),
      read: () => driver.read(["frozen"]),
      time: () => driver.read([]),
      list: () => driver.list("", undefined, 10),
      sweep: async () => driver.sweep?.(10),
    };
    for (const [what, ask] of Object.entries(asked)) {
      expect(await failure(ask()), what).toMatchObject(outage);
    }
    await client.query("set default_transaction_read_only = off");
    expect((await driver.read(["frozen"])).records).toEqual([{ version, text: "one" }]);
  });

  test("that lags, and that a pool is led to, is an outage for each request, and reports no old records", async () => {
    let silentMs = 0;
    const clock = { ...systemClock, monotonicMs: () => systemClock.monotonicMs() + silentMs };
    const pool = poolTo(address.port);
    const store = postgresStore(pool, { clock });
    const locks = createLocks(store, { onWarning: () => {}, requestTimeoutMs: 500 });
    onTestFinished(async () => {
      stream.heal();
      address.leadTo(primary.port);
      await locks.close();
      await pool.end();
    });
    // What the standby knows: one key was used and is free, another is taken by somebody, and of a third it never heard.
    await take(store, theirs("used"));
    await store.release([theirs("used")]);
    await take(store, theirs("left"));
    await standby.catchUp();
    stream.refuse();
    await store.release([theirs("left")]);
    for (const key of ["used", "new"]) await take(store, mine(key));
    const lease = await locks.mutex("lease", { ttlMs }).acquire();

    address.leadTo(standby.port);
    const role = "select pg_is_in_recovery() as is_standby";
    await until("the pool leads to the standby", async () => (await pool.query(role)).rows[0].is_standby);
    // A write is refused, and what was known is forgotten; then come a guess, a comparison, and what follows upon them.
    for (const ms of [0, 0, 0, 0, SILENCE_MS, SILENCE_MS]) {
      silentMs += ms;
      for (const key of ["used", "new"]) {
        expect(await failure(store.renew([mine(key)])), `renew ${key}`).toMatchObject(outage);
        expect(await failure(store.acquire(mine(key))), `acquire ${key}`).toMatchObject(outage);
        expect(await failure(store.release([mine(key)])), `release ${key}`).toMatchObject(outage);
      }
      expect(await failure(store.acquire(mine("left"))), "try").toMatchObject(outage);
      const waiting = { ...mine("left"), wait: true };
      expect(await failure(store.acquire(waiting)), "wait").toMatchObject(outage);
      for (const query of [{ key: "used" }, { key: "left" }, { prefix: "", limit: 10 }]) {
        const look = store.look({ ...query, maxClaims: 10 });
        expect(await failure(look), JSON.stringify(query)).toMatchObject(outage);
      }
    }
    const asked = [lease.extend(ttlMs + 1), locks.mutex("left").tryAcquire(), locks.inspect("used")];
    for (const error of await Promise.all(asked.map(failure))) expect(error).toMatchObject(unavailable);
    expect([lease.held, lease.signal.aborted]).toEqual([true, false]);

    address.leadTo(primary.port);
    await until("the pool has found back", () => store.renew([mine("used")]).then(isHeld));
    expect(await store.renew([mine("new")])).toMatchObject([{ state: "held" }]);
    expect(await lease.release()).toBe(true);
    expect(await store.release([mine("used"), mine("new")])).toEqual([true, true]);
  });

  test("that lags behind the migration is an outage, and no missing table", async () => {
    const pool = poolTo(address.port);
    const store = postgresStore(pool, { table: "late_locks", autoMigrate: true });
    onTestFinished(async () => {
      stream.heal();
      address.leadTo(primary.port);
      await store.close();
      await pool.end();
    });
    stream.refuse();
    await take(store, mine("late"));
    address.leadTo(standby.port);
    const role = "select pg_is_in_recovery() as is_standby";
    await until("the pool leads to the standby", async () => (await pool.query(role)).rows[0].is_standby);
    for (let times = 0; times < 3; times++) {
      expect(await failure(store.renew([mine("late")])), "renew").toMatchObject(outage);
      expect(await failure(store.acquire(mine("other"))), "acquire").toMatchObject(outage);
      expect(await failure(store.look({ key: "late", maxClaims: 1 })), "look").toMatchObject(outage);
    }
    address.leadTo(primary.port);
    await until("the pool has found back", () => store.renew([mine("late")]).then(isHeld));
    expect(await store.release([mine("late")])).toEqual([true]);
  });

  test("has all that was confirmed where the primary waits for it, and goes on from there when it is promoted", async () => {
    const admin = poolTo(primary.port);
    await admin.query("alter system set synchronous_standby_names = 'heir'");
    await admin.query("select pg_reload_conf()");
    await until("the standby is waited for", async () => {
      const { rows } = await admin.query("select from pg_stat_replication where sync_state = 'sync'");
      return rows.length === 1;
    });
    // Whoever tells all sessions to wait for it has heard by then.
    await admin.query("checkpoint");
    await admin.end();
    const [store, other] = [open(), open()];
    const held = await take(store, mine("held"));
    const waiting = { ...theirs("held"), wait: true };
    expect(await other.acquire(waiting)).toMatchObject({ state: "waiting" });
    const free = await take(store, mine("free"));
    await store.release([mine("free")]);
    // So that the release is there as well: it does not wait for the standby.
    const last = await take(store, mine("last"));

    await primary.kill();
    address.leadTo(standby.port);
    expect(await failure(store.renew([mine("held")]))).toMatchObject(unavailable);
    await standby.promote();
    await until("the pool is served", () => store.renew([mine("held")]).then(isHeld));
    expect(await store.renew([mine("held"), mine("last")])).toMatchObject([
      { state: "held", fence: held.fence },
      { state: "held", fence: last.fence },
    ]);
    expect(await other.acquire({ ...mine("held"), id: "third" })).toMatchObject({ state: "refused" });
    expect(await other.renew([waiting])).toMatchObject([{ state: "waiting" }]);
    expect(await store.release([mine("held")])).toEqual([true]);
    const [next] = await other.renew([waiting]);
    expect(next).toMatchObject({ state: "held" });
    expect((next as HeldAnswer).fence).toBeGreaterThan(held.fence);
    expect((await take(other, theirs("free"))).fence).toBeGreaterThan(free.fence);
  });

  test("that lacks the last changes when it is promoted gives out no fence twice, and reports lost leases", async () => {
    stream.leadTo(standby.port);
    const heir = await startPostgresStandby(standby, standbyOptions());
    onTestFinished(() => heir.stop());
    const [store, other] = [open(), open()];
    const before = await take(store, mine("given back"));
    await heir.catchUp();
    stream.refuse();
    await store.release([mine("given back")]);
    const lost = await take(store, mine("granted"));
    const waiting = { ...theirs("granted"), wait: true };
    expect(await other.acquire(waiting)).toMatchObject({ state: "waiting" });

    await standby.kill();
    address.leadTo(heir.port);
    await heir.promote();
    await until("the pool is served", async () => {
      const [answer] = await other.renew([waiting]);
      return answer?.state === "gone";
    });
    const next = await take(other, theirs("granted"));
    expect(next.fence).toBeGreaterThan(lost.fence);
    expect(await store.renew([mine("granted")])).toEqual([{ state: "gone" }]);
    expect(await other.acquire(theirs("given back"))).toMatchObject({ state: "refused" });
    expect(await store.renew([mine("given back")])).toMatchObject([{ state: "held", fence: before.fence }]);
  });
});

/** With the words of the store, which say what to do. */
const outage = { code: "STORE_UNAVAILABLE", message: expect.stringContaining("primary") };
const unavailable = { code: "STORE_UNAVAILABLE" };

function isHeld(answers: readonly { readonly state: string }[]): boolean {
  return answers.every(({ state }) => state === "held");
}
