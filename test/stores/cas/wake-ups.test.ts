/** How grants get to those who wait: within the process, by a push of the driver, or by looking again. */
import type { ClaimRef } from "holdfast";
import { expect, test } from "vitest";
import { attempt, createScene, type Process, type Scene, wait } from "./scene.ts";

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

/** A driver that listens when the test says so. Nobody looks at keys meanwhile. */
function listeningLater(scene: Scene) {
  let listen = () => {};
  const listening = new Promise<void>((resolve) => {
    listen = resolve;
  });
  const process = scene.process({
    minPollMs: 60_000,
    maxPollMs: 60_000,
    wrap: (driver) => ({
      ...driver,
      async listen(owner, onWake) {
        await listening;
        return (await driver.listen?.(owner, onWake)) ?? (() => {});
      },
    }),
  });
  return { process, listen };
}

const forLong = { ttlMs: 60_000 };

test("cas: whoever waits for a lock that is free is not held up by a driver that never listens", async () => {
  const scene = createScene();
  const { process } = listeningLater(scene);
  listen(process, "me");
  let state = "unanswered";
  void process.store.acquire(wait("k", "w", { owner: "me" })).then((answer) => {
    state = answer.state;
  });
  await scene.clock.advance(100);
  expect(state).toBe("held");
});

test("cas: a claim that was granted before its owner listened is noticed when it does", async () => {
  const scene = createScene();
  const a = scene.process();
  const { process: b, listen: begin } = listeningLater(scene);
  const told = listen(b, "them");
  await a.store.acquire(attempt("k", "holder", forLong));
  await scene.soon(b.store.acquire(wait("k", "w", { owner: "them", ...forLong })));
  await a.store.release([attempt("k", "holder")]);
  await scene.clock.advance(1_000);
  expect(told).toEqual([]);
  begin();
  await scene.clock.advance(0);
  expect(told).toEqual(["w"]);
});

test("cas: so is one that was granted and whose owner listened before the answer came that it waits", async () => {
  const scene = createScene();
  const a = scene.process();
  const { process: b, listen: begin } = listeningLater(scene);
  const told = listen(b, "them");
  await a.store.acquire(attempt("k", "holder", forLong));
  b.usual = { backMs: 200 };
  const asked = b.store.acquire(wait("k", "w", { owner: "them", ...forLong }));
  // It is held back until 100 ms, learns of the holder at 300 ms, and is in the queue from then on.
  await scene.clock.advance(350);
  await a.store.release([attempt("k", "holder")]);
  begin();
  await scene.clock.advance(50);
  expect(told).toEqual([]);
  expect(await scene.soon(asked)).toMatchObject({ state: "waiting" });
  await scene.clock.advance(200);
  expect(told).toEqual(["w"]);
});

test("cas: a claim that waits while its owner listens anew is looked at once, and then no more", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  listen(b, "them");
  await a.store.acquire(attempt("k", "holder", forLong));
  await scene.soon(b.store.acquire(wait("k", "w", { owner: "them", ...forLong })));
  const before = b.requests.length;
  listen(b, "them");
  await scene.clock.advance(30_000);
  expect(b.requests.length - before).toBe(1);
});
