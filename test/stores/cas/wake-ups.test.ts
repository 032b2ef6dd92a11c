/** How grants get to those who wait: within the process, by a push of the driver, or by looking again. */
import type { ClaimRef } from "holdfast";
import { expect, test } from "vitest";
import { attempt, createScene, type Process, wait } from "./scene.ts";

function listen(process: Process, owner: string): string[] {
  const told: string[] = [];
  process.store.onGrant(owner, (refs: readonly ClaimRef[]) => told.push(...refs.map(({ id }) => id)));
  return told;
}

function wakesOf(process: Process): readonly { owner: string; id: string }[] {
  return process.requests.flatMap(({ batch }) => batch?.changes.flatMap(({ wakes }) => wakes) ?? []);
}

test("cas: a grant within a process is told without the driver", async () => {
  const scene = createScene();
  const a = scene.process();
  const told = listen(a, "me");
  await a.store.acquire(attempt("k", "holder"));
  await a.store.acquire(wait("k", "w", { owner: "me" }));
  await a.store.release([attempt("k", "holder")]);
  await scene.clock.advance(0);
  expect(told).toEqual(["w"]);
  expect(wakesOf(a)).toEqual([]);
});

test("cas: a grant to another process is passed on with the change, and nobody polls", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  const told = listen(b, "them");
  await a.store.acquire(attempt("k", "holder", { ttlMs: 60_000 }));
  await b.store.acquire(wait("k", "w", { owner: "them", ttlMs: 60_000 }));
  const before = b.requests.length;
  await scene.clock.advance(30_000);
  expect(b.requests.length).toBe(before);
  await a.store.release([attempt("k", "holder")]);
  await scene.clock.advance(0);
  expect(wakesOf(a)).toEqual([{ owner: "them", id: "w", fence: expect.any(BigInt) }]);
  expect(told).toEqual(["w"]);
});

test("cas: without pushes, one request looks at all keys that are waited for, ever more seldom", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process({ pushes: false, minPollMs: 20, maxPollMs: 1_000 })];
  const told = listen(b, "them");
  const keys = Array.from({ length: 50 }, (_, n) => `k${n}`);
  const life = { owner: "them", ttlMs: 600_000 };
  await Promise.all(keys.map((key) => a.store.acquire(attempt(key, "holder", life))));
  await Promise.all(keys.map((key) => b.store.acquire(wait(key, `w ${key}`, life))));
  await scene.clock.advance(10_000);
  const before = b.requests.length;
  await scene.clock.advance(10_000);
  expect(b.requests.length - before).toBe(10);
  expect(b.requests.at(-1)?.batch?.changes.map(({ text }) => text)).toEqual(keys.map(() => undefined));
  await a.store.release([attempt("k7", "holder")]);
  for (let ms = 0; ms < 1_000 && told.length === 0; ms += 10) await scene.clock.advance(10);
  expect(told).toEqual(["w k7"]);
  // Things move, so the next look comes soon.
  await a.store.release([attempt("k8", "holder")]);
  await scene.clock.advance(100);
  expect(told).toEqual(["w k7", "w k8"]);
});

test("cas: nobody looks again when nobody waits any more", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process({ pushes: false })];
  listen(b, "them");
  await a.store.acquire(attempt("k", "holder"));
  const request = wait("k", "w", { owner: "them" });
  await b.store.acquire(request);
  await b.store.release([request]);
  await scene.clock.advance(2_000);
  const before = b.requests.length;
  await scene.clock.advance(10_000);
  expect(b.requests.length).toBe(before);
});

test("cas: while listening fails, the keys are looked at, and no longer when it works", async () => {
  const scene = createScene();
  let failures = 2;
  const b = scene.process({
    wrap: (driver) => ({
      ...driver,
      async listen(owner, onWake) {
        if (failures-- > 0) throw new Error("not now");
        return (await driver.listen?.(owner, onWake)) ?? (() => {});
      },
    }),
  });
  const a = scene.process();
  const told = listen(b, "them");
  await a.store.acquire(attempt("k", "holder", { ttlMs: 60_000 }));
  await b.store.acquire(wait("k", "w", { owner: "them", ttlMs: 60_000 }));
  await scene.clock.advance(90);
  expect(b.requests.length).toBeGreaterThan(3);
  await scene.clock.advance(5_000);
  const before = b.requests.length;
  await scene.clock.advance(5_000);
  expect(b.requests.length).toBe(before);
  await a.store.release([attempt("k", "holder")]);
  await scene.clock.advance(0);
  expect(told).toEqual(["w"]);
});
