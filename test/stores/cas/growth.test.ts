/** What waiters add to every change of their key: docs/stores/cas.md says how much. */
import type { CasDriver } from "holdfast/cas";
import { expect, test } from "vitest";
import { attempt, createScene, wait } from "./scene.ts";

test("cas: a waiter adds some 150 bytes to the record of its key", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("k", "holder"));
  const bytes = () => Buffer.byteLength(scene.database.rows.get("k")?.text ?? "");
  const before = bytes();
  // As the client makes them: ids of 12 characters, tokens of 24, and an owner that names host and process.
  const waiters = Array.from({ length: 1_000 }, (_, n) => {
    const id = `${n}`.padStart(12, "x");
    return wait("k", id, { token: id.repeat(2), owner: "some-host:12345:1a2b3c4d", ttlMs: 30_000 });
  });
  await Promise.all(waiters.map((waiter) => a.store.acquire(waiter)));
  const each = (bytes() - before) / waiters.length;
  expect(each).toBeGreaterThan(120);
  expect(each).toBeLessThan(180);
  expect(await a.store.acquire(wait("k", "one too many"))).toEqual({
    state: "refused",
    reason: "queue-full",
  });
});

const small = (driver: CasDriver): CasDriver => ({ ...driver, limits: { recordBytes: 4_096 } });

test("cas: a record keeps within its bytes, also where claims are asked for again with more to say", async () => {
  const scene = createScene();
  const { store } = scene.process({ wrap: small });
  await store.acquire(attempt("k", "holder"));
  const ids = Array.from({ length: 15 }, (_, n) => `w${n}`);
  for (const id of ids) await store.acquire(wait("k", id));
  const asked = ids.map((id) => store.acquire(wait("k", id, { info: "y".repeat(1_000) })));
  const settled = await Promise.allSettled(asked);
  const refused = settled.filter(({ status }) => status === "rejected");
  expect(refused.length).toBeGreaterThan(0);
  for (const { reason } of refused as PromiseRejectedResult[]) expect(reason.code).toBe("QUEUE_FULL");
  const text = scene.database.rows.get("k")?.text ?? "";
  expect(Buffer.byteLength(text)).toBeLessThanOrEqual(4_096);
  expect(JSON.parse(text).waiting).toHaveLength(15);
});

test("cas: a claim that there is no room for takes none from a smaller one after it", async () => {
  const scene = createScene();
  const { store } = scene.process({ wrap: small });
  await store.acquire(attempt("k", "holder"));
  const info = "x".repeat(1_000);
  for (const id of ["a", "b", "c"]) await store.acquire(wait("k", id, { info }));
  const large = store.acquire(wait("k", "large", { info }));
  const little = store.acquire(wait("k", "little"));
  await expect(large).rejects.toMatchObject({ code: "QUEUE_FULL" });
  expect((await little).state).toBe("waiting");
});
