/** The server's time is known only within bounds, and every decision takes the bound that harms nobody. */
import { createLocks } from "holdfast";
import { expect, test } from "vitest";
import { ServerTime } from "../../../src/stores/cas/server-time.ts";
import { attempt, createScene, type Scene } from "./scene.ts";

function held(scene: Scene, key: string): { expiresAtMs: number }[] {
  return JSON.parse(scene.database.rows.get(key)?.text ?? "").held;
}

test("cas: a lease lives on the server for at least as long as its owner counts", async () => {
  const scene = createScene();
  const a = scene.process();
  // The server reads its clock at once, and the reply takes long: the time is later than it says, by up to 100 ms.
  a.usual = { thereMs: 0, backMs: 100 };
  await scene.soon(a.store.acquire(attempt("other", "x")));
  const sentMs = scene.database.nowMs();
  const answer = await scene.soon(a.store.acquire(attempt("k", "a", { ttlMs: 1_000 })));
  expect(answer).toMatchObject({ state: "held", expiresInMs: 1_000 });
  expect(held(scene, "k")[0]?.expiresAtMs).toBeGreaterThanOrEqual(sentMs + 1_000);
});

test("cas: nobody is dropped before the time has certainly come", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  await a.store.acquire(attempt("k", "a", { ttlMs: 1_000 }));
  const expiresAtMs = held(scene, "k")[0]?.expiresAtMs ?? 0;
  // The request takes long, and the server reads its clock just before it answers: it may be later by up to 100 ms.
  b.usual = { thereMs: 100, backMs: 0 };
  await scene.soon(b.store.acquire(attempt("other", "x")));
  await scene.clock.advance(expiresAtMs - scene.database.nowMs() - 150);
  b.usual = {};
  await scene.clock.advance(149);
  expect((await b.store.acquire(attempt("k", "b"))).state).toBe("refused");
  // A moment more than the rest of its time, for the drift of clocks.
  await scene.clock.advance(3);
  expect((await b.store.acquire(attempt("k", "b"))).state).toBe("held");
});

test("cas: a server that comes back with its clock behind drops nobody early", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  await a.store.acquire(attempt("k", "a", { ttlMs: 5_000 }));
  await b.store.acquire(attempt("other", "b"));
  // 1. The server's clock goes back. 2. A renewal by it ends, in numbers, before what b takes for the present time.
  scene.skewMs = -20_000;
  await a.store.acquire(attempt("elsewhere", "a"));
  await a.store.release([attempt("k", "a")]);
  await a.store.acquire(attempt("k", "c", { ttlMs: 5_000 }));
  // 3. b would drop it, but the server does not agree about the time.
  expect((await b.store.acquire(attempt("k", "b"))).state).toBe("refused");
  expect(b.requests.at(-1)?.batch?.earliestMs).toBeLessThan(scene.database.nowMs() + 1_000);
  await scene.clock.advance(6_000);
  expect((await b.store.acquire(attempt("k", "b"))).state).toBe("held");
});

test("cas: what was decided by one server's clock is not done by another's", async () => {
  const scene = createScene();
  const [a, b] = [scene.process(), scene.process()];
  await a.store.acquire(attempt("k", "a", { ttlMs: 5_000 }));
  await b.store.acquire(attempt("other", "b"));
  // 1. A server takes over whose clock is ahead. b hears from it of the claim, which it takes for expired.
  scene.skewMs = 20_000;
  b.journeys.push({}, { thereMs: 10 });
  const answer = b.store.acquire(attempt("k", "b"));
  await scene.clock.advance(5);
  expect(JSON.parse(b.requests.at(-1)?.batch?.changes[0]?.text ?? "").held).toMatchObject([{ id: "b" }]);
  // 2. The former server is back, by whose clock a holds the key, before b's change gets there.
  scene.skewMs = 0;
  expect((await scene.soon(answer)).state).toBe("refused");
  expect(await a.store.renew([attempt("k", "a")])).toMatchObject([{ state: "held" }]);
});

// The driver checks the window of a change against the server's clock together with the change.
test("cas: a change that is held up for longer than a flight is not made", async () => {
  const scene = createScene();
  const a = scene.process({ requestTimeoutMs: 1_000 });
  await a.store.acquire(attempt("other", "x"));
  a.journeys.push({ thereMs: 1_500 });
  const call = a.store.acquire(attempt("k", "a"));
  await expect(scene.soon(call)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await scene.clock.advance(1_000);
  expect(scene.database.rows.has("k")).toBe(false);
});

test("cas: a machine that was suspended promises no more than the server keeps", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("other", "x"));
  // The server's clock went on for three seconds, and this machine's did not.
  scene.skewMs = 3_000;
  const answer = await a.store.acquire(attempt("k", "a", { ttlMs: 10_000 }));
  const leftMs = (held(scene, "k")[0]?.expiresAtMs ?? 0) - scene.database.nowMs();
  expect(answer.state === "held" && answer.expiresInMs).toBeLessThanOrEqual(leftMs);
});

test("cas: a clock that never agrees is an outage after a while, not contention", async () => {
  const scene = createScene();
  const a = scene.process({
    giveUpMs: 1_000,
    wrap: (driver) => ({
      ...driver,
      swap: async ({ changes }) => ({
        nowMs: scene.database.nowMs(),
        results: changes.map(() => ({ state: "untimely" as const })),
      }),
    }),
  });
  a.usual = { thereMs: 5, backMs: 5 };
  await expect(scene.soon(a.store.acquire(attempt("k", "a")))).rejects.toMatchObject({
    code: "STORE_UNAVAILABLE",
    message: expect.stringContaining("clock"),
  });
});

test("cas: after a long silence the time is asked for again", async () => {
  const scene = createScene();
  const a = scene.process();
  await a.store.acquire(attempt("k", "a", { ttlMs: 600_000 }));
  await scene.clock.advance(61_000);
  await a.store.renew([attempt("k", "a")]);
  expect(a.requests.slice(-2).map(({ request }) => request)).toEqual(["read", "swap"]);
});

test("server time: the bounds hold the true time and move apart with the drift", () => {
  const time = new ServerTime(0.01, () => 60_000);
  expect(time.at(0)).toBeUndefined();
  time.add(1_000_000, 100, 120);
  expect(time.at(120)).toEqual({ lowMs: 1_000_000, highMs: 1_000_022 });
  expect(time.at(1_120)).toEqual({ lowMs: 1_000_990, highMs: 1_001_032 });
  expect(time.at(60_121)).toBeUndefined();
});

test("server time: the narrowest sample counts, until it contradicts a later one", () => {
  const time = new ServerTime(0, () => 60_000);
  time.add(1_000, 0, 10);
  time.add(1_100, 100, 150);
  expect(time.at(150)).toEqual({ lowMs: 1_140, highMs: 1_151 });
  time.add(1_205, 200, 204);
  expect(time.at(204)).toEqual({ lowMs: 1_205, highMs: 1_210 });
  // The clock was set back. Then a reply comes that was overtaken, from before that.
  time.add(700, 300, 310);
  expect(time.at(310)).toEqual({ lowMs: 700, highMs: 711 });
  time.add(1_290, 290, 320);
  expect(time.at(310)).toEqual({ lowMs: 700, highMs: 711 });
});

test("server time: bounds that have become wide are not used, unless they are fresh", () => {
  const time = new ServerTime(0.1, () => 60_000);
  time.add(0, 0, 400);
  expect(time.at(500)).toBeDefined();
  expect(time.at(1_500)).toBeUndefined();
});

test("cas: what a driver does before its first request does not make the time less certain, and is done until it succeeds", async () => {
  const scene = createScene();
  let prepared = 0;
  const slowly = async () => {
    await new Promise<void>((resolve) => void scene.clock.setTimer(100, resolve));
    if (++prepared === 1) throw new Error("nobody is there");
  };
  const a = scene.process({ wrap: (driver) => ({ ...driver, prepare: slowly }) });
  await expect(scene.soon(a.store.acquire(attempt("k", "a")))).rejects.toThrow("nobody is there");
  expect(a.requests).toEqual([]);
  await scene.soon(a.store.acquire(attempt("k", "a", { ttlMs: 1_000 })));
  // Within the tick that the server may have rounded off.
  expect(held(scene, "k")[0]?.expiresAtMs).toBeLessThanOrEqual(scene.database.nowMs() + 1_001);
  await scene.soon(a.store.look({ key: "k", maxClaims: 1 }));
  expect(prepared).toBe(2);
});

test("cas: a driver is listened to before it is prepared, and is prepared for no call that comes afterwards", async () => {
  const scene = createScene();
  const told: string[] = [];
  const a = scene.process({
    wrap: (driver) => ({
      ...driver,
      async prepare() {
        told.push("prepare");
        await new Promise<void>((resolve) => void scene.clock.setTimer(100, resolve));
        told.push("prepared");
      },
      async listen(owner, onWake) {
        told.push("listen");
        return (await driver.listen?.(owner, onWake)) ?? (() => {});
      },
    }),
  });
  a.store.onGrant("me", () => {});
  const looking = a.store.look({ key: "k", maxClaims: 1 });
  await scene.soon(Promise.all([looking, a.store.acquire(attempt("k", "a"))]));
  expect(told[0]).toBe("listen");
  expect(told).toContain("prepared");
  const before = [...told];
  await scene.soon(a.store.look({ key: "k", maxClaims: 1 }));
  await scene.soon(a.store.acquire(attempt("other", "a")));
  expect(told).toEqual(before);
});

test("server time: a sample that is too old to be used gives way to one that is less exact", () => {
  const time = new ServerTime(0.001, () => 60_000);
  time.add(1_000, 0, 1);
  time.add(62_000, 61_000, 61_200);
  expect(time.at(61_200)).toBeDefined();
});

test("cas: a holder whose way to the server has become slower, and never fails, keeps its lease", async () => {
  const scene = createScene();
  const a = scene.process();
  const locks = createLocks(a.store, { clock: scene.clock });
  const lease = await scene.soon(locks.mutex("k", { ttlMs: 10_000 }).acquire());
  // As after a failover to another region, beside what was known when it was quick.
  a.usual = { thereMs: 100, backMs: 100 };
  for (let ms = 0; ms < 90_000 && lease.held; ms += 50) await scene.clock.advance(50);
  expect(lease.held).toBe(true);
});

test.each([
  { who: "compares", checksTime: true, silentMs: 61_000, slowMs: 200, clockDrift: 0.001 },
  { who: "does not compare", checksTime: false, silentMs: 6_000, slowMs: 50, clockDrift: 0.001 },
  {
    who: "compares, by clocks that do not drift",
    checksTime: true,
    silentMs: 61_000,
    slowMs: 3,
    clockDrift: 0,
  },
])(
  "cas: after a silence, a server that $who times and has become slower is asked for its time once",
  async (given) => {
    const { checksTime, silentMs, slowMs, clockDrift } = given;
    const scene = createScene();
    const a = scene.process({ clockDrift, wrap: (driver) => ({ ...driver, checksTime }) });
    await a.store.acquire(attempt("k", "a"));
    await scene.clock.advance(silentMs);
    a.usual = { thereMs: slowMs };
    a.requests.splice(0);
    await scene.soon(a.store.acquire(attempt("other", "b")));
    expect(a.requests.map(({ request }) => request)).toEqual(["read", "swap"]);
  },
);
