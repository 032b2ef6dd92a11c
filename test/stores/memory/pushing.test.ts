import { type ClaimRequest, memoryStore, type Store } from "holdfast";
import { ManualClock, settled } from "holdfast/testing";
import { expect, test } from "vitest";

const mutex: ClaimRequest = {
  key: "k",
  id: "job",
  token: "",
  weight: 1,
  limit: 1,
  priority: 0,
  ttlMs: 30_000,
  wait: true,
  owner: "",
  info: "",
  application: "",
};

const stale = { key: "k", id: "job", token: "former" };

test.each<[string, (store: Store) => Promise<unknown>]>([
  ["renewal", (store) => store.renew([stale])],
  ["release", (store) => store.release([stale])],
  ["acquire with another priority", (store) => store.acquire({ ...mutex, token: "former", priority: 1 })],
])("memory: a grant that comes about through a former caller's %s is pushed to its owner", async (_, ask) => {
  const clock = new ManualClock();
  const store = memoryStore({ clock });
  const pushed: string[] = [];
  store.onGrant("latter", (refs) => pushed.push(...refs.map(({ id }) => id)));
  await store.acquire({ ...mutex, id: "crashed", token: "crashed", ttlMs: 1_000 });
  await store.acquire({ ...mutex, token: "former", owner: "former" });
  await store.acquire({ ...mutex, token: "latter", owner: "latter" });
  await clock.advance(1_000);
  await ask(store);
  await settled();
  expect(pushed).toEqual(["job"]);
});
