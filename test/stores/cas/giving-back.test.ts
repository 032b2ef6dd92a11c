/** Which changes a driver is told of that a crash may lose: those that give claims back, and do nothing else. */
import { casStore, type SwapBatch } from "holdfast/cas";
import { ManualClock } from "holdfast/testing";
import { expect, onTestFinished, test } from "vitest";
import { KeptDatabase, keptDriver } from "./kept-driver.ts";
import { attempt, createScene, type Process, wait } from "./scene.ts";

const TTL_MS = 10_000;

/** What the latest change was said to end that would have ended anyway: how long after now. */
function toldOf({ requests }: Process, nowMs: number): number | undefined {
  const change = requests.at(-1)?.batch?.changes[0];
  if (change === undefined) throw new Error("The last request was no swap.");
  return change.endsAnywayMs === undefined ? undefined : change.endsAnywayMs - nowMs;
}

/** A process that knows the time, and that nothing is held up on its way to. */
async function begin() {
  const scene = createScene();
  const process = scene.process();
  await process.store.acquire(attempt("other", "x"));
  // Lives are counted from the latest that the server's time can be, a tick more than it was.
  const told = () => toldOf(process, scene.clock.wallMs() + 1);
  return { scene, process, store: process.store, told };
}

test("cas: a release tells when the claim would have ended, and nothing else does", async () => {
  const { store, told } = await begin();
  const request = attempt("k", "a", { ttlMs: TTL_MS });
  await store.acquire(request);
  expect(told()).toBeUndefined();
  await store.renew([{ ...request, ttlMs: 3 * TTL_MS }]);
  expect(told()).toBeUndefined();
  await store.release([request]);
  expect(told()).toBe(3 * TTL_MS);
  expect((await store.acquire(attempt("k", "b"))).state).toBe("held");
  expect((await store.acquire(attempt("k", "c"))).state).toBe("refused");
  expect(told()).toBeUndefined();
});

test("cas: of several claims that are given back, the last to end is told", async () => {
  const { store, told } = await begin();
  const readers = [1, 3, 2].map((times) =>
    attempt("k", `reader-${times}`, { ttlMs: times * TTL_MS, limit: 100 }),
  );
  for (const reader of readers) await store.acquire(reader);
  await store.release(readers);
  expect(told()).toBe(3 * TTL_MS);
});

test("cas: a waiter that gives up its place has given it back", async () => {
  const { store, told } = await begin();
  await store.acquire(attempt("k", "a", { ttlMs: TTL_MS }));
  const waiter = wait("k", "b", { ttlMs: 2 * TTL_MS });
  await store.acquire(waiter);
  expect(told()).toBeUndefined();
  await store.release([waiter]);
  expect(told()).toBe(2 * TTL_MS);
});

test("cas: a release that lets the next one in is a grant", async () => {
  const { store, told } = await begin();
  await store.acquire(attempt("k", "a"));
  await store.acquire(wait("k", "b"));
  await store.release([attempt("k", "a")]);
  expect(told()).toBeUndefined();
});

test("cas: so is one that is made together with an acquire of the same key, or with a heartbeat", async () => {
  const { store, told } = await begin();
  const [reader, other] = [attempt("k", "a", { limit: 100 }), attempt("k", "b", { limit: 100 })];
  await store.acquire(reader);
  await Promise.all([store.acquire(other), store.release([reader])]);
  expect(told()).toBeUndefined();
  await store.acquire(reader);
  await Promise.all([store.release([reader]), store.renew([{ ...other, ttlMs: 5 * TTL_MS }])]);
  expect(told()).toBeUndefined();
});

test("cas: a claim that is taken away by force is to stay away", async () => {
  const { store, told } = await begin();
  await store.acquire(attempt("k", "a"));
  await store.release([{ key: "k", id: "a" }]);
  expect(told()).toBeUndefined();
});

test("cas: a claim that hangs on a keeper would not end by itself, so its release is to stay", async () => {
  const clock = new ManualClock();
  const driver = keptDriver(new KeptDatabase(() => clock.wallMs()), clock, "a");
  const batches: SwapBatch[] = [];
  const swap = (batch: SwapBatch) => {
    batches.push(batch);
    return driver.swap(batch);
  };
  const store = casStore({ ...driver, swap }, { clock });
  onTestFinished(() => store.close());
  await store.acquire(attempt("k", "a"));
  expect(await store.release([attempt("k", "a")])).toEqual([true]);
  expect(batches.length).toBeGreaterThan(1);
  expect(batches.flatMap(({ changes }) => changes.map((change) => change.endsAnywayMs))).toEqual(
    batches.map(() => undefined),
  );
});
