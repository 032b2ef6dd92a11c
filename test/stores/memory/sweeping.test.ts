import { type ClaimRequest, memoryStore, type Store } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

test("memory: records whose claims all expired do not pile up", async () => {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  for (let generation = 0; generation < 10; generation++) {
    for (let n = 0; n < 10_000; n++) await store.acquire(requestFor(`${generation}:${n}`));
    await clock.advance(60_000);
  }
  // A page looks at 10,000 records, dead ones included, so the number of pages tells how many there are.
  expect(await pagesOf(store)).toBeLessThanOrEqual(4);
}, 60_000);

test("memory: sweeping leaves the living alone, and lets waiters in whose holder has expired", async () => {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  const told: string[] = [];
  store.onGrant("waiter", (refs) => told.push(...refs.map((ref) => ref.id)));
  await store.acquire(requestFor("contended"));
  await store.acquire({
    ...requestFor("contended"),
    id: "next",
    token: "next",
    owner: "waiter",
    ttlMs: 600_000,
  });
  await store.acquire({ ...requestFor("living"), ttlMs: 600_000 });
  await clock.advance(60_000);
  for (let n = 0; n < 3_000; n++) await store.acquire(requestFor(`other:${n}`));
  await clock.advance(0);
  expect(told).toEqual(["next"]);
  const [living] = (await store.look({ key: "living", maxClaims: 1 })).keys;
  expect(living?.heldCount).toBe(1);
});

function requestFor(key: string): ClaimRequest {
  const terms = { weight: 1, limit: 1, priority: 0, ttlMs: 30_000, wait: true };
  return { key, id: "claim", token: "token", ...terms, owner: "test", info: "", application: "" };
}

async function pagesOf(store: Store): Promise<number> {
  let pages = 0;
  let cursor: string | undefined;
  do {
    const query = { prefix: "none", limit: 1_000, maxClaims: 0 };
    ({ cursor } = await store.look(cursor === undefined ? query : { ...query, cursor }));
    pages++;
  } while (cursor !== undefined);
  return pages;
}
