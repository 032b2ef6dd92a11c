/** A record without claims is kept for its fence, and removed when nobody can be harmed by that any more. */
import { expect, test } from "vitest";
import { mapDriver } from "../../../examples/driver/map-driver.ts";
import { attempt, createScene, type Process } from "./scene.ts";

const fenceOf = (answer: { state: string; fence?: bigint }) => answer.fence ?? 0n;

test("cas: a create that is late never hands out an older fence than one that came and went", async () => {
  const scene = createScene();
  const options = { requestTimeoutMs: 5_000, keepIdleMs: 6_000 };
  const [slow, quick] = [scene.process(options), scene.process(options)];
  await slow.store.acquire(attempt("other", "x"));
  await quick.store.acquire(attempt("other", "y"));
  // 1. The slow one finds no record, decides to make one, and is held up on the way.
  slow.journeys.push({ thereMs: 4_500 });
  const late = slow.store.acquire(attempt("k", "slow"));
  await scene.clock.advance(1_000);
  // 2. The quick one is granted the key, with a later fence, and releases it.
  const fence = fenceOf(await quick.store.acquire(attempt("k", "quick")));
  await quick.store.release([attempt("k", "quick")]);
  // 3. If the record were removed now, as of no use, the slow one's create would succeed, with its older fence.
  await scene.clock.advance(3_000);
  await mapDriver(scene.database).sweep?.(1_000);
  expect(fenceOf(await scene.soon(late))).toBeGreaterThan(fence);
});

test("cas: a record is removed some time after its last claim, in the background, and fences grow all the same", async () => {
  const scene = createScene();
  const a = scene.process({ requestTimeoutMs: 1_000, keepIdleMs: 5_000 });
  const fence = fenceOf(await a.store.acquire(attempt("k", "a")));
  await a.store.release([attempt("k", "a")]);
  await scene.clock.advance(4_990);
  expect(scene.database.rows.size).toBe(1);
  // Too young for the sweep that removes the first.
  const later = attempt("other", "x");
  await a.store.acquire(later);
  await a.store.release([later]);
  await scene.clock.advance(3_000);
  expect([...scene.database.rows.keys()]).toEqual(["other"]);
  await scene.clock.advance(8_010);
  expect(scene.database.rows.size).toBe(0);
  expect(fenceOf(await a.store.acquire(attempt("k", "b")))).toBeGreaterThan(fence);
});

test("cas: what a crashed process left is removed by others, once its claims have ended", async () => {
  const scene = createScene();
  const [dead, a] = [scene.process(), scene.process({ requestTimeoutMs: 1_000, keepIdleMs: 5_000 })];
  await dead.store.acquire(attempt("left", "x", { ttlMs: 2_000 }));
  await scene.clock.advance(310_000);
  expect(scene.database.rows.has("left")).toBe(true);
  await a.store.acquire(attempt("k", "a"));
  await a.store.release([attempt("k", "a")]);
  await scene.clock.advance(10_000);
  expect(scene.database.rows.has("left")).toBe(false);
});

test("cas: nothing is removed that somebody holds, however long ago it was granted", async () => {
  const scene = createScene();
  const a = scene.process({ requestTimeoutMs: 1_000, keepIdleMs: 2_000 });
  await a.store.acquire(attempt("held", "a", { ttlMs: 100_000 }));
  for (let turn = 0; turn < 5; turn++) {
    await a.store.acquire(attempt("k", "b"));
    await a.store.release([attempt("k", "b")]);
    await scene.clock.advance(5_000);
  }
  expect(scene.database.rows.has("held")).toBe(true);
});

test("cas: idle records are not listed, and a listing is in the order of the keys' bytes", async () => {
  const scene = createScene();
  const a = scene.process();
  const keys = ["b", "a", "ﬀ", "\u{1F600}", "é", "a\u00e9"];
  for (const key of [...keys, "idle"]) await a.store.acquire(attempt(key, "x"));
  await a.store.release([attempt("idle", "x")]);
  const seen: string[] = [];
  for (let cursor: string | undefined, turn = 0; turn < 9; turn++) {
    const page = await a.store.look({ prefix: "", limit: 2, maxClaims: 1, ...(cursor && { cursor }) });
    seen.push(...page.keys.map(({ key }) => key));
    cursor = page.cursor;
    if (cursor === undefined) break;
  }
  expect(seen).toEqual(keys.sort((x, y) => Buffer.compare(Buffer.from(x), Buffer.from(y))));
});

/** Takes a lock, and gives it back. */
async function cycle({ store }: Pick<Process, "store">, key: string): Promise<void> {
  await store.acquire(attempt(key, "a"));
  await store.release([attempt(key, "a")]);
}

test("cas: records go as fast as they come, also where many come each second", async () => {
  const scene = createScene();
  const a = scene.process({ requestTimeoutMs: 1_000, keepIdleMs: 5_000 });
  let made = 0;
  for (let second = 0; second < 40; second++) {
    await Promise.all(Array.from({ length: 2_000 }, () => cycle(a, `k${made++}`)));
    await scene.clock.advance(1_000);
  }
  // Those of some twelve seconds: for as long they are kept, and until the next sweep.
  expect(scene.database.rows.size).toBeLessThan(30_000);
});

test("cas: claims that end by themselves leave no records, however long they live, and also where nothing else comes", async () => {
  const scene = createScene();
  const a = scene.process({ requestTimeoutMs: 1_000, keepIdleMs: 5_000 });
  for (const ttlMs of [1_000, 30_000, 600_000]) {
    await a.store.acquire(attempt(`once:${ttlMs}`, "a", { ttlMs }));
    await a.store.acquire(attempt(`renewed:${ttlMs}`, "a", { ttlMs }));
    await scene.clock.advance(ttlMs - 500);
    await a.store.renew([attempt(`renewed:${ttlMs}`, "a", { ttlMs })]);
    expect(scene.database.rows.size).toBe(2);
    await scene.clock.advance(ttlMs + 20_000);
    expect(scene.database.rows.size).toBe(0);
  }
});

test("cas: processes that live for less than records are kept remove those of each other", async () => {
  const scene = createScene();
  let chance = 0;
  for (let nth = 0; nth < 100; nth++) {
    chance = (chance + 0.37) % 1;
    const random = () => chance;
    const a = scene.process({ requestTimeoutMs: 1_000, keepIdleMs: 10_000, random });
    for (let key = 0; key < 10; key++) await cycle(a, `${nth}:${key}`);
    await scene.clock.advance(3_000);
    await a.store.close();
  }
  expect(scene.database.rows.size).toBeLessThan(300);
});
