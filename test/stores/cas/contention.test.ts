/** Several processes that want the same key: somebody always gets on, and so does everybody in the end. */
import { expect, test } from "vitest";
import { attempt, createScene, wait } from "./scene.ts";

test("cas: processes that swap the same key at the same time all get their turn", async () => {
  const scene = createScene();
  const processes = Array.from({ length: 8 }, (_, n) => scene.process({ random: () => (n + 0.5) / 8 }));
  for (const process of processes) process.usual = { thereMs: 3, backMs: 3 };
  const answers = processes.map((process, n) => process.store.acquire(wait("k", `w${n}`)));
  const states = (await scene.soon(Promise.all(answers))).map(({ state }) => state);
  expect(states.filter((state) => state === "held")).toHaveLength(1);
  expect(states.filter((state) => state === "waiting")).toHaveLength(7);
});

test("cas: a process that is slower than all others gets in, however busy they are", async () => {
  const scene = createScene();
  const [quick, slow] = [scene.process(), scene.process()];
  quick.usual = { thereMs: 1, backMs: 1 };
  slow.usual = { thereMs: 7, backMs: 7 };
  const request = attempt("k", "quick");
  await scene.soon(quick.store.acquire(request));
  let isBusy = true;
  const busy = (async () => {
    // Its time goes on between two heartbeats, so each of them is a change.
    while (isBusy) await quick.store.renew([request]);
  })();
  const answer = await scene.soon(slow.store.acquire(wait("k", "slow")));
  isBusy = false;
  await scene.soon(busy);
  expect(answer.state).toBe("waiting");
});

test("cas: who never gets on gives up with an outage, not with contention", async () => {
  const scene = createScene();
  const a = scene.process({
    giveUpMs: 2_000,
    wrap: (driver) => ({
      ...driver,
      async swap({ changes }) {
        const current = () => ({
          version: ++scene.database.versions,
          text: '{"v":1,"fence":"0","held":[],"waiting":[]}',
        });
        const results = changes.map(() => ({ state: "conflict" as const, current: current() }));
        return { nowMs: scene.database.nowMs(), results };
      },
    }),
  });
  a.usual = { thereMs: 5, backMs: 5 };
  const startMs = scene.clock.monotonicMs();
  await expect(scene.soon(a.store.acquire(attempt("k", "a")))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    key: "k",
  });
  expect(scene.clock.monotonicMs() - startMs).toBeGreaterThanOrEqual(2_000);
});

test("cas: keys that do not fit into memory together do not keep each other from getting on", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process({ cachedKeys: 1 })];
  b.usual = { thereMs: 2, backMs: 2 };
  const keys = Array.from({ length: 10 }, (_, n) => `k${n}`);
  await Promise.all(keys.map((key) => a.store.acquire(attempt(key, "a"))));
  const answers = Promise.all(keys.map((key) => b.store.acquire(wait(key, "b"))));
  expect((await scene.soon(answers)).every(({ state }) => state === "waiting")).toBe(true);
  expect(b.requests.length).toBeLessThan(6);
});
