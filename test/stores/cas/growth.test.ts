/** What waiters add to every change of their key: docs/stores/cas.md says how much. */
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
