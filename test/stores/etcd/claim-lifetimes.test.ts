/** Lives that hang on etcd leases, on a clock that the test owns, between processes whose own clocks are hours apart. */
import { type Clock, HoldfastError, type Store } from "holdfast";
import { type CasDriver, type CasStoreOptions, casStore } from "holdfast/cas";
import { ManualClock } from "holdfast/testing";
import { expect, onTestFinished, test } from "vitest";
import { attempt, wait } from "../cas/scene.ts";
import { LeaseDatabase, type LeaseDriver, leaseDriver } from "./lease-driver.ts";

const HOUR_MS = 3_600_000;

function createScene() {
  const clock = new ManualClock();
  const database = new LeaseDatabase(() => clock.wallMs());
  let processes = 0;
  const process = (
    wrap = (driver: LeaseDriver): CasDriver => driver,
    options: CasStoreOptions = {},
  ): { store: Store; driver: LeaseDriver } => {
    // No two agree on the time of day.
    const offMs = HOUR_MS * processes++;
    const own: Clock = {
      wallMs: () => clock.wallMs() + offMs,
      monotonicMs: () => clock.monotonicMs(),
      setTimer: (delayMs, callback) => clock.setTimer(delayMs, callback),
    };
    const driver = leaseDriver(database, own, `process-${processes}`);
    const store = casStore(wrap(driver), { ...options, clock: own });
    onTestFinished(() => store.close());
    return { store, driver };
  };
  return { clock, database, process };
}

test("cas: a claim that nobody renews is ended by the process that keeps it, to the millisecond, and the next is told", async () => {
  const { clock, database, process } = createScene();
  const [{ store: a }, { store: b }] = [process(), process()];
  await a.acquire(attempt("k", "left", { ttlMs: 5_000 }));
  const told: string[] = [];
  b.onGrant("b", (refs) => told.push(...refs.map(({ id }) => id)));
  await b.acquire(wait("k", "next", { owner: "b", ttlMs: 60_000 }));
  await clock.advance(4_999);
  expect(told).toEqual([]);
  await clock.advance(1);
  expect(told).toEqual(["next"]);
  expect(database.alive.size).toBe(2);
});

test("cas: a claim of another process lives as long as its etcd lease, whatever the time is", async () => {
  const { clock, database, process } = createScene();
  const dead = process();
  const { store: b } = process();
  await dead.store.acquire(attempt("k", "a", { ttlMs: 5_000 }));
  // Its process does nothing any more, and yet has not ended as far as anybody knows.
  await dead.store.close();
  for (const waitedMs of [0, 6_000, 30_000, 10 * HOUR_MS]) {
    await clock.advance(waitedMs);
    expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "refused" });
  }
  database.end(dead.driver.registry.forLife(5_000));
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "held" });
});

test("cas: the end of a etcd lease that nobody told of is found by the swap that relies on it", async () => {
  const { database, process } = createScene();
  const dead = process();
  const { store: b } = process();
  await dead.store.acquire(attempt("k", "a"));
  await dead.store.close();
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "refused" });
  database.alive.delete(dead.driver.registry.forLife(10_000));
  database.alive.delete("process-1/10000");
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "held" });
});

test("cas: whoever waits is served when a etcd lease ends, without asking", async () => {
  const { clock, database, process } = createScene();
  const dead = process();
  const { store: b } = process();
  await dead.store.acquire(attempt("k", "a"));
  const told: string[] = [];
  b.onGrant("b", (refs) => told.push(...refs.map(({ id }) => id)));
  await b.acquire(wait("k", "next", { owner: "b", ttlMs: 60_000 }));
  await dead.store.close();
  database.end("process-1/10000");
  await clock.advance(1);
  expect(told).toEqual(["next"]);
});

test("cas: a heartbeat asks for a sign of life, and writes nothing", async () => {
  const { clock, database, process } = createScene();
  const { store } = process();
  const request = attempt("k", "a", { ttlMs: 5_000 });
  await store.acquire(request);
  expect(database.signs).toBe(0);
  const { versions } = database;
  for (let beat = 0; beat < 5; beat++) {
    await clock.advance(3_000);
    expect(await store.renew([request])).toMatchObject([{ state: "held", expiresInMs: 5_000 }]);
  }
  expect(database.versions).toBe(versions);
  expect(database.signs).toBe(5);
});

/** A database that keeps no promise of less than 1,001 ms. */
function withoutShort(driver: LeaseDriver): CasDriver {
  const refusal = new HoldfastError("INVALID_ARGUMENT", "ttlMs must be at least 1001 here.");
  const ready = (ttlMs: number) => (ttlMs <= 1_000 ? Promise.reject(refusal) : undefined);
  const { lifetimes } = driver;
  lifetimes.ready = ready;
  return driver;
}

test("cas: a ttl that no etcd lease will do for is refused, and the others of the call are renewed", async () => {
  const { clock, process } = createScene();
  const { store } = process(withoutShort);
  const [short, other] = [attempt("a", "a", { ttlMs: 2_000 }), attempt("b", "b", { ttlMs: 2_000 })];
  for (const request of [short, other]) await store.acquire(request);
  await clock.advance(1_500);
  expect(await store.renew([{ ...short, ttlMs: 500 }, other])).toMatchObject([
    { state: "failed", error: { code: "INVALID_ARGUMENT" } },
    { state: "held", expiresInMs: 2_000 },
  ]);
  await expect(store.renew([{ ...short, ttlMs: 500 }])).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
});

test("cas: no more is promised than is proven of the etcd lease", async () => {
  const { process } = createScene();
  const { store, driver } = process();
  driver.provenForMs = 1_200;
  const request = attempt("k", "a", { ttlMs: 5_000 });
  expect(await store.acquire(request)).toMatchObject({ state: "held", expiresInMs: 1_200 });
  expect(await store.renew([request])).toMatchObject([{ state: "held", expiresInMs: 1_200 }]);
  driver.provenForMs = -1;
  expect(await store.renew([request])).toMatchObject([{ state: "held", expiresInMs: 0 }]);
});

test("cas: a claim whose own etcd lease has ended is gone", async () => {
  const { database, process } = createScene();
  const { store } = process();
  const request = attempt("k", "a", { ttlMs: 5_000 });
  await store.acquire(request);
  // The database has ended it, and this process does not know.
  database.alive.delete("process-1/5000");
  const renewing = store.renew([request]);
  database.end("process-1/5000");
  expect(await renewing).toEqual([{ state: "gone" }]);
});

// The process notes the end of the claim before it sends the change.
test("cas: a claim of which the reply was lost is ended by the process that asked for it", async () => {
  const { clock, process } = createScene();
  let lose = false;
  const { store: a } = process((driver) => ({
    ...driver,
    async swap(batch) {
      const reply = await driver.swap(batch);
      if (lose) throw new Error("lost");
      return reply;
    },
  }));
  const { store: b } = process();
  await a.acquire(attempt("warm", "warm"));
  lose = true;
  await expect(a.acquire(attempt("k", "a", { ttlMs: 5_000 }))).rejects.toThrow("lost");
  lose = false;
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "refused" });
  await clock.advance(5_000);
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "held" });
});

test("cas: a lease that another process took over and released is not free while its former caller may count on it", async () => {
  const { clock, process } = createScene();
  const [{ store: a }, { store: b }, { store: c }] = [process(), process(), process()];
  const former = attempt("k", "a", { ttlMs: 5_000 });
  await a.acquire(former);
  await clock.advance(1_000);
  const latter = { ...former, token: "another" };
  expect(await b.acquire(latter)).toMatchObject({ state: "held" });
  // Through a third one, which knows nothing of the two.
  expect(await c.release([latter])).toEqual([true]);
  // The former caller may have been promised 5 s just before it was taken over.
  await clock.advance(4_999);
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "refused" });
  await clock.advance(2);
  expect(await b.acquire(attempt("k", "b"))).toMatchObject({ state: "held" });
});

test("cas: extending hangs a claim on a etcd lease that lives for longer", async () => {
  const { database, process } = createScene();
  const { store } = process();
  const request = attempt("k", "a", { ttlMs: 5_000 });
  await store.acquire(request);
  await store.renew([{ ...request, ttlMs: 60_000 }]);
  expect(database.rows.get("k")?.text).toContain('"etcdLease":"process-1/60000"');
});

test("cas: whoever takes a claim over without knowing of it does not shorten what its former caller was promised", async () => {
  const { clock, process } = createScene();
  const { store: a } = process((driver) => driver, { cachedKeys: 1 });
  await a.acquire(attempt("k", "a", { ttlMs: 8_000 }));
  // The process forgets the record, and guesses that there is none.
  await a.acquire(attempt("l", "l"));
  const latter = attempt("k", "a", { token: "another", ttlMs: 2_000 });
  expect(await a.acquire(latter)).toMatchObject({ state: "held" });
  expect(await a.release([latter])).toEqual([true]);
  await clock.advance(7_999);
  expect(await a.acquire(attempt("k", "b"))).toMatchObject({ state: "refused" });
  await clock.advance(1);
  expect(await a.acquire(attempt("k", "b"))).toMatchObject({ state: "held" });
});
