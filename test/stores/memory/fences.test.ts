import { type ClaimRequest, memoryStore, UNLIMITED } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";

test("memory: a fence never goes back after a burst of grants was released and its record dropped", async () => {
  const store = memoryStore({ clock: new ManualClock() });
  const request = (id: string, limit: number): ClaimRequest => ({
    key: "burst",
    id,
    token: id,
    weight: 1,
    limit,
    priority: 0,
    ttlMs: 1_000,
    wait: true,
    owner: "",
    info: "",
    application: "",
  });
  await store.acquire(request("writer", 1));
  const readers = Array.from({ length: 100 }, (_, index) => request(`reader-${index}`, UNLIMITED));
  for (const reader of readers) await store.acquire(reader);
  await store.release([request("writer", 1)]);
  const highest = (await store.look({ key: "burst", maxClaims: 0 })).keys[0]!.fence;
  await store.release(readers);
  const next = await store.acquire(request("next", 1));
  expect(next.state === "held" && next.fence > highest).toBe(true);
});
