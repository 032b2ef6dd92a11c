/** What lock cycles cost, in requests to the database. */
import type { CasDriver } from "holdfast/cas";
import { expect, test } from "vitest";
import { attempt, createScene, type Process, wait } from "./scene.ts";

/** The requests that an action takes, by their names. */
async function requestsOf(process: Process, action: () => Promise<unknown>): Promise<string> {
  const before = process.requests.length;
  await action();
  return process.requests
    .slice(before)
    .map(({ request }) => request)
    .join(" ");
}

/** A process that has heard the time. */
async function warm(process: Process): Promise<Process> {
  await process.store.acquire(attempt("warm", "warm"));
  return process;
}

const hundred = Array.from({ length: 100 }, (_, index) => `${index}`);

test("cas: the first call of a process also asks for the time", async () => {
  const a = createScene().process();
  expect(await requestsOf(a, () => a.store.acquire(attempt("k", "a")))).toBe("read swap");
});

test("cas: an acquire that nobody contends takes one round trip, and so does its release", async () => {
  const a = await warm(createScene().process());
  const request = attempt("k", "a");
  expect(await requestsOf(a, () => a.store.acquire(request))).toBe("swap");
  expect(await requestsOf(a, () => a.store.renew([request]))).toBe("swap");
  expect(await requestsOf(a, () => a.store.release([request]))).toBe("swap");
  expect(await requestsOf(a, () => a.store.acquire(attempt("k", "b")))).toBe("swap");
});

test("cas: a refusal is compared with the server, in one round trip", async () => {
  const a = await warm(createScene().process());
  await a.store.acquire(attempt("k", "a"));
  expect(await requestsOf(a, () => a.store.acquire(attempt("k", "b")))).toBe("swap");
  expect(a.requests.at(-1)?.batch?.changes[0]?.text).toBeUndefined();
});

test("cas: a hundred keys at once take one round trip to acquire, to renew and to release", async () => {
  const a = await warm(createScene().process());
  const requests = hundred.map((key) => attempt(key, "a"));
  const acquired = () => Promise.all(requests.map((request) => a.store.acquire(request)));
  expect(await requestsOf(a, acquired)).toBe("swap");
  expect(await requestsOf(a, () => a.store.renew(requests))).toBe("swap");
  expect(await requestsOf(a, () => a.store.release(requests))).toBe("swap");
});

test("cas: a hundred waiters for one key take one round trip, also for their heartbeats", async () => {
  const a = await warm(createScene().process());
  await a.store.acquire(attempt("k", "holder"));
  const requests = hundred.map((id) => wait("k", id));
  const queued = () => Promise.all(requests.map((request) => a.store.acquire(request)));
  expect(await requestsOf(a, queued)).toBe("swap");
  expect(await requestsOf(a, () => a.store.renew(requests))).toBe("swap");
});

test("cas: what another process has changed takes one more", async () => {
  const scene = createScene();
  const [a, b] = [await warm(scene.process()), await warm(scene.process())];
  await a.store.acquire(attempt("k", "a"));
  expect(await requestsOf(b, () => b.store.acquire(wait("k", "b")))).toBe("swap swap");
});

test("cas: while requests are under way, calls gather", async () => {
  const scene = createScene();
  const a = await warm(scene.process({ maxConcurrentRequests: 1 }));
  a.usual = { thereMs: 5, backMs: 5 };
  const first = a.store.acquire(attempt("first", "a"));
  await scene.clock.advance(1);
  const rest = hundred.map(async (key) => {
    await scene.clock.advance(0);
    return a.store.acquire(attempt(key, "a"));
  });
  expect(await requestsOf(a, () => scene.soon(Promise.all([first, ...rest])))).toBe("swap");
});

test("cas: a key is in one flight at a time, and a batch has a bound", async () => {
  const scene = createScene();
  const a = await warm(scene.process());
  a.usual = { thereMs: 5, backMs: 5 };
  const keys = Array.from({ length: 600 }, (_, index) => `${index}`);
  const calls = keys.flatMap((key) => [
    a.store.acquire(attempt(key, "a")),
    a.store.acquire(attempt(key, "b", { wait: true })),
  ]);
  await scene.clock.advance(1);
  const more = keys.map((key) => a.store.acquire(attempt(key, "c")));
  await scene.clock.advance(1);
  const flying = a.requests.flatMap(({ batch }) => batch?.changes.map(({ key }) => key) ?? []).slice(1);
  expect(new Set(flying).size).toBe(flying.length);
  await scene.soon(Promise.all([...calls, ...more]));
  expect(Math.max(...a.requests.map(({ batch }) => batch?.changes.length ?? 0))).toBe(256);
});

test("cas: a driver that has found out that its server checks the time need not ask for it as often", async () => {
  const scene = createScene();
  let checksTime = false;
  const wrap = (driver: CasDriver): CasDriver => ({
    ...driver,
    get checksTime() {
      return checksTime;
    },
  });
  const a = await warm(scene.process({ wrap }));
  await scene.clock.advance(10_000);
  expect(await requestsOf(a, () => a.store.acquire(attempt("k", "a")))).toBe("read swap");
  checksTime = true;
  await scene.clock.advance(10_000);
  expect(await requestsOf(a, () => a.store.acquire(attempt("l", "a")))).toBe("swap");
});

test("cas: what is asked for in one breath goes together, however many promises each caller has awaited", async () => {
  const a = await warm(createScene().process());
  const asking = hundred.map((key, turns) => async () => {
    for (let turn = 0; turn < turns; turn++) await undefined;
    return a.store.acquire(attempt(key, "a"));
  });
  expect(await requestsOf(a, () => Promise.all(asking.map((ask) => ask())))).toBe("swap");
});
