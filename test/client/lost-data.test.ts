import { type ClaimRequest, createLocks, memoryStore, type Store } from "holdfast";
import { type FaultPlan, faultyStore, ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

/** A client of a store that can lose all its data, and whose pushes are lost. */
function open(plan: FaultPlan) {
  const clock = new ManualClock();
  let inner = memoryStore({ clock });
  const store: Store = {
    name: "forgetful",
    durability: "ephemeral",
    counts: true,
    acquire: (request) => inner.acquire(request),
    renew: (refs) => inner.renew(refs),
    release: (refs) => inner.release(refs),
    look: (query) => inner.look(query),
    onGrant: () => () => {},
    close: () => inner.close(),
  };
  const locks = createLocks(faultyStore(store, plan, { clock }), { clock });
  const loseData = () => {
    inner = memoryStore({ clock });
  };
  return { clock, store, locks, loseData };
}

const other: ClaimRequest = {
  key: "k",
  id: "other",
  token: "other",
  weight: 1,
  limit: 1,
  priority: 0,
  ttlMs: 600_000,
  wait: true,
  owner: "",
  info: "",
  application: "",
};

test("a grant from before the store lost its data does not count once the client knows of that", async () => {
  const { clock, store, locks, loseData } = open(({ verb, count }) =>
    verb === "renew" && count === 1 ? { afterMs: 5_000 } : undefined,
  );
  await store.acquire(other);
  let granted = false;
  void locks
    .mutex("k", { ttlMs: 30_000 })
    .acquire()
    .then(() => {
      granted = true;
    });
  await clock.advance(9_000);
  await store.release([other]);
  // The heartbeat brings the grant. Its answer is late, and repeated meanwhile.
  await clock.advance(1_500);
  loseData();
  await store.acquire(other);
  await clock.advance(2_000);
  expect(await locks.inspect("k")).toMatchObject({ held: [{ id: "other" }], waitingCount: 1 });
  await clock.advance(10_000);
  expect(granted).toBe(false);
});

test("a lease that the store has lost is not kept by a repeated acquire that now waits", async () => {
  const { clock, store, locks, loseData } = open(({ verb, count }) =>
    verb === "acquire" && count === 1 ? { repeatAfterMs: 2_000 } : undefined,
  );
  const lease = await locks.mutex("k", { ttlMs: 30_000 }).acquire();
  await clock.advance(1_000);
  loseData();
  await store.acquire(other);
  await clock.advance(1_000);
  expect(await locks.inspect("k")).toMatchObject({ held: [{ id: "other" }], waiting: [{ id: lease.id }] });
  await clock.advance(8_000);
  expect(lease.state).toMatchObject({ held: false, lost: "gone" });
  expect(await locks.inspect("k")).toMatchObject({ held: [{ id: "other" }], waitingCount: 0 });
});

test("a lease that the store has lost is not kept by a repeated acquire that is granted anew", async () => {
  const { clock, store, locks, loseData } = open(({ verb, count }) =>
    verb === "acquire" && count === 1 ? { repeatAfterMs: 2_000 } : undefined,
  );
  const lease = await locks.mutex("k", { ttlMs: 30_000 }).acquire();
  await clock.advance(1_000);
  loseData();
  await store.acquire(other);
  await store.release([other]);
  await clock.advance(1_000);
  expect(await locks.inspect("k")).toMatchObject({ held: [{ id: lease.id }] });
  await clock.advance(8_000);
  expect(lease.state).toMatchObject({ held: false, lost: "gone" });
  expect(await locks.inspect("k")).toMatchObject({ heldCount: 0 });
});
