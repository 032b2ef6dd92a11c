/** What an answer may rest on: never on memory alone, and never on a swap of which nobody knows what became. */
import { StoreUnavailableError } from "holdfast";
import type { CasDriver } from "holdfast/cas";
import { expect, test } from "vitest";
import { attempt, createScene, wait } from "./scene.ts";

const lost = () => new StoreUnavailableError("lost");

/** A driver that says of changes of some keys that they have failed. */
function failing(errorOf: (key: string) => Error | undefined) {
  return (driver: CasDriver): CasDriver => ({
    ...driver,
    async swap(batch) {
      const reply = await driver.swap(batch);
      const results = reply.results.map((result, index) => {
        const error = errorOf(batch.changes[index]?.key ?? "");
        return error === undefined ? result : { state: "failed" as const, error };
      });
      return { ...reply, results };
    },
  });
}

test("cas: a refusal is not taken from what was known", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  await a.store.acquire(attempt("k", "a"));
  // 1. b learns that a holds the key. 2. a releases it. 3. b, whose memory says that it is held, asks again.
  expect((await b.store.acquire(attempt("k", "b"))).state).toBe("refused");
  await a.store.release([attempt("k", "a")]);
  expect((await b.store.acquire(attempt("k", "b"))).state).toBe("held");
});

// The record may have changed since it was read, so the server compares its version.
test("cas: neither is that a claim is gone, nor that there was nothing to release", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  const request = attempt("k", "x");
  expect(await a.store.release([request])).toEqual([false]);
  expect(await a.store.renew([request])).toEqual([{ state: "gone" }]);
  await b.store.acquire(request);
  expect(await a.store.renew([request])).toMatchObject([{ state: "held" }]);
  expect(await a.store.release([request])).toEqual([true]);
});

test("cas: nor that a lease is held", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  const request = attempt("k", "x");
  await a.store.acquire(request);
  await b.store.release([{ key: "k", id: "x" }]);
  await b.store.acquire(attempt("k", "y"));
  expect(await a.store.renew([request])).toEqual([{ state: "gone" }]);
});

test("cas: a reply that is lost is an outage, and asking again is the same claim", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("other", "x"));
  a.journeys.push({ error: lost() });
  await expect(a.store.acquire(attempt("k", "a"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  const fence = JSON.parse(scene.database.rows.get("k")?.text ?? "").fence;
  expect(await a.store.acquire(attempt("k", "a"))).toMatchObject({ state: "held", fence: BigInt(fence) });
});

// The repeated acquire would find its claim in the cached record, whose old version the server confirms.
test("cas: a request that is lost leaves nothing behind in memory either", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("k", "a"));
  await a.store.release([attempt("k", "a")]);
  const before = scene.database.rows.get("k");
  a.journeys.push({ thereMs: Number.POSITIVE_INFINITY, error: lost() });
  await expect(a.store.acquire(attempt("k", "b"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  expect(scene.database.rows.get("k")).toBe(before);
  expect((await a.store.acquire(attempt("k", "b"))).state).toBe("held");
  expect(JSON.parse(scene.database.rows.get("k")?.text ?? "").held).toMatchObject([{ id: "b" }]);
});

test("cas: a database that never answers is an outage after the time of a flight, and the key goes on", async () => {
  const scene = createScene();
  const a = scene.process({ requestTimeoutMs: 1_000 });
  await a.store.acquire(attempt("other", "x"));
  a.journeys.push({ thereMs: Number.POSITIVE_INFINITY, backMs: 60_000 });
  const calls = [a.store.acquire(attempt("k", "a")), a.store.acquire(attempt("k", "b"))];
  const outcomes = Promise.allSettled(calls);
  await scene.clock.advance(999);
  const later = a.store.acquire(attempt("k", "c"));
  await scene.clock.advance(1);
  expect(await outcomes).toMatchObject([
    { reason: { code: "STORE_UNAVAILABLE" } },
    { reason: { code: "STORE_UNAVAILABLE" } },
  ]);
  expect((await later).state).toBe("held");
});

test("cas: a failure of the driver's own is a STORE_FAILURE with its cause", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("other", "x"));
  const cause = new TypeError("no such thing");
  a.journeys.push({ error: cause });
  await expect(a.store.acquire(attempt("k", "a"))).rejects.toMatchObject({ code: "STORE_FAILURE", cause });
});

test.each(["read", "swap"] as const)(
  "cas: a driver whose %s tells no time has failed, and the process goes on",
  async (verb) => {
    const scene = createScene();
    let nowMs: unknown;
    const wrap = (driver: CasDriver): CasDriver => {
      const timeless = async <R extends object>(reply: Promise<R>) => ({
        ...(await reply),
        ...(nowMs !== 0 && { nowMs }),
      });
      return verb === "read"
        ? { ...driver, read: (keys) => timeless(driver.read(keys)) as ReturnType<CasDriver["read"]> }
        : { ...driver, swap: (batch) => timeless(driver.swap(batch)) as ReturnType<CasDriver["swap"]> };
    };
    const a = scene.process({ wrap });
    for (const unusable of [undefined, Number.NaN, "soon"]) {
      nowMs = unusable;
      await expect(a.store.acquire(attempt("k", "a"))).rejects.toMatchObject({
        code: "STORE_FAILURE",
        message: expect.stringContaining("nowMs"),
      });
    }
    nowMs = 0;
    expect((await a.store.acquire(attempt("k", "a"))).state).toBe("held");
  },
);

test("cas: a record that cannot be read fails its own key, is left as it is, and harms no other", async () => {
  const scene = createScene();
  const a = scene.process();
  const texts = { corrupt: "not json", future: '{"v":99,"fence":"1","held":[],"waiting":[]}' };
  for (const [key, text] of Object.entries(texts)) {
    scene.database.rows.set(key, {
      version: ++scene.database.versions,
      text,
      idle: false,
      keepUntilMs: 1e15,
    });
  }
  for (const turn of ["when nothing is known", "and again"]) {
    const [corrupt, future, fine] = await Promise.allSettled([
      a.store.acquire(attempt("corrupt", `a ${turn}`)),
      a.store.acquire(attempt("future", `a ${turn}`)),
      a.store.acquire(attempt(`fine ${turn}`, "a")),
    ]);
    expect(corrupt).toMatchObject({ reason: { code: "STORE_FAILURE", key: "corrupt" } });
    expect(future).toMatchObject({ reason: { code: "STORE_FAILURE", key: "future" } });
    expect(fine).toMatchObject({ value: { state: "held" } });
  }
  await expect(a.store.look({ key: "future", maxClaims: 1 })).rejects.toMatchObject({
    code: "STORE_FAILURE",
  });
  for (const [key, text] of Object.entries(texts)) expect(scene.database.rows.get(key)?.text).toBe(text);
});

test("cas: a heartbeat that fails for one key is answered for the others", async () => {
  const scene = createScene();
  const a = scene.process();
  const requests = [attempt("good", "a"), attempt("damaged", "a")];
  for (const request of requests) await a.store.acquire(request);
  const damaged = { version: ++scene.database.versions, text: "{", idle: false, keepUntilMs: 1e15 };
  scene.database.rows.set("damaged", damaged);
  expect(await a.store.renew(requests)).toMatchObject([
    { state: "held" },
    { state: "failed", error: { code: "STORE_FAILURE", key: "damaged" } },
  ]);
  await expect(a.store.renew(requests.slice(1))).rejects.toMatchObject({ code: "STORE_FAILURE" });
});

test("cas: what fails for different reasons in one heartbeat is told each its own", async () => {
  const scene = createScene();
  let isDown = false;
  const outage = new StoreUnavailableError("the other half is away");
  const a = scene.process({ wrap: failing((key) => (isDown && key === "away" ? outage : undefined)) });
  const requests = [attempt("damaged", "a"), attempt("away", "a")];
  for (const request of requests) await a.store.acquire(request);
  const damaged = { version: ++scene.database.versions, text: "{", idle: false, keepUntilMs: 1e15 };
  scene.database.rows.set("damaged", damaged);
  isDown = true;
  const failed = [
    { state: "failed", error: { code: "STORE_FAILURE", key: "damaged" } },
    { state: "failed", error: { code: "STORE_UNAVAILABLE" } },
  ];
  expect(await a.store.renew(requests)).toMatchObject(failed);
  expect(await a.store.renew(requests.toReversed())).toMatchObject(failed.toReversed());
});

test("cas: one change that the database refuses fails alone", async () => {
  const scene = createScene();
  const a = scene.process({ wrap: failing((key) => (key === "bad" ? new Error("too odd") : undefined)) });
  const [bad, good] = await Promise.allSettled([
    a.store.acquire(attempt("bad", "a")),
    a.store.acquire(attempt("good", "a")),
  ]);
  expect(bad).toMatchObject({ reason: { code: "STORE_FAILURE", key: "bad" } });
  expect(good).toMatchObject({ value: { state: "held" } });
});

test("cas: a record that is full refuses new claims, and serves those that it has", async () => {
  const scene = createScene();
  const a = scene.process({ wrap: (driver) => ({ ...driver, limits: { recordBytes: 8_192 } }) });
  await a.store.acquire(attempt("k", "holder"));
  const requests = Array.from({ length: 20 }, (_, n) => wait("k", `w${n}`, { info: "é".repeat(500) }));
  const outcomes = await Promise.allSettled(requests.map((request) => a.store.acquire(request)));
  const refused = outcomes.filter(({ status }) => status === "rejected");
  expect(refused.length).toBeGreaterThan(0);
  expect(outcomes.length - refused.length).toBeGreaterThan(3);
  for (const outcome of refused) expect(outcome).toMatchObject({ reason: { code: "QUEUE_FULL" } });
  expect(Buffer.byteLength(scene.database.rows.get("k")?.text ?? "")).toBeLessThanOrEqual(8_192);
  expect(await a.store.renew([requests[0] ?? wait("k", "")])).toMatchObject([{ state: "waiting" }]);
  expect(await a.store.release([attempt("k", "holder")])).toEqual([true]);
});

test("cas: closing waits for what is under way, and refuses what is pending", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("k", "a"));
  a.usual = { thereMs: 10, backMs: 10 };
  const under = a.store.release([attempt("k", "a")]);
  await scene.clock.advance(5);
  const pending = a.store.acquire(attempt("k", "b"));
  const refused = expect(pending).rejects.toMatchObject({ code: "CLOSED" });
  let closed = false;
  const closing = a.store.close().then(() => {
    closed = true;
  });
  await refused;
  expect(closed).toBe(false);
  await scene.clock.advance(20);
  await closing;
  expect(await under).toEqual([true]);
  expect(scene.clock.pendingTimers).toBe(0);
});
