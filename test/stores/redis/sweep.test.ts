/** What a crashed holder left is a field of a hash, which Redis does not drop by itself. Calls for other locks do, by chance. */
import type { ClaimRequest } from "holdfast";
import { Redis } from "ioredis";
import { expect, test } from "vitest";
import { redisStore } from "../../../src/stores/redis/index.ts";
import { SCRIPT } from "../../../src/stores/redis/script.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { START_US } from "./differential-histories.ts";
import { createUser } from "./rights.ts";
import { TimedClient, timedScript } from "./timed-script.ts";
import { timedStore } from "./timed-store.ts";

const LOCKS = "holdfast:{0}:locks";
const TTL_MS = 1_000;
/** When Redis has dropped the sets of what had this ttl. */
const OVER_MS = TTL_MS + 1_001;

const timed = timedStore({ sweeps: true });

/** To some milliseconds after the start, at a time that is a turn to sweep or is not. */
function passTo(ms: number, sweeps = false): void {
  const us = START_US + ms * 1_000;
  timed.client.us = us - (us % 64) + (sweeps ? 64 : 1);
}

/** A call looks at two locks first, which may be any. By so many, each of some is found. */
const SWEEPS = 40;

async function sweepOften(): Promise<void> {
  for (let turn = 0; turn < SWEEPS; turn++) {
    passTo(OVER_MS, true);
    await timed.store.look({ key: "other", maxClaims: 1 });
  }
}

const hold = (key: string, changes: Partial<ClaimRequest> = {}) =>
  timed.store.acquire(claimRequest("a", { key, ttlMs: TTL_MS, ...changes }));

/** Two claims, which makes the record a spread one. */
async function share(key: string, ttlMs = TTL_MS): Promise<void> {
  await timed.store.acquire(claimRequest("a", { key, ttlMs, limit: 2 }));
  await timed.store.acquire(claimRequest("b", { key, ttlMs, limit: 2 }));
}

async function kept(): Promise<string[]> {
  return (await timed.redis.hkeys(LOCKS)).filter((key) => key !== "").sort();
}

test("redis: what was left to expire is swept by calls for other locks, and nothing else is", async () => {
  await hold("left");
  await share("left by two");
  await hold("held", { ttlMs: 60_000 });
  await share("held by two", 60_000);
  await timed.redis.hset(LOCKS, "foreign", "not ours");
  await sweepOften();

  expect(await kept()).toEqual(["foreign", "held", "held by two"]);
  expect(await timed.redis.keys("*:left by two")).toEqual([]);
  for (const key of ["held", "held by two"]) {
    const { keys } = await timed.store.look({ key, maxClaims: 0 });
    expect(keys[0]?.heldCount).toBe(key === "held" ? 1 : 2);
  }
  // The mark stays: fences go on growing.
  expect(await timed.redis.hexists(LOCKS, "")).toBe(1);
});

test("redis: what has just expired is left to those who may want it", async () => {
  await hold("left");
  await share("left by two");
  passTo(OVER_MS - 1, true);
  await timed.store.look({ key: "other", maxClaims: 1 });
  expect(await kept()).toEqual(["left", "left by two"]);
});

test("redis: most calls do not sweep", async () => {
  await hold("left");
  passTo(OVER_MS);
  await timed.store.look({ key: "other", maxClaims: 1 });
  expect(await kept()).toEqual(["left"]);
});

test("redis: where most are dead, one call looks at some 250 of them", async () => {
  const keys = Array.from({ length: 2_000 }, (_, index) => `left-${index}`);
  await Promise.all(keys.map((key) => hold(key)));
  passTo(OVER_MS, true);
  await timed.store.look({ key: "other", maxClaims: 1 });
  const { length } = await kept();
  expect(length).toBeGreaterThan(2_000 - 280);
  expect(length).toBeLessThan(2_000 - 200);
});

test.each([1, 50])("redis: locks that are all left to expire do not heap up, at %d a call", async (size) => {
  const found: number[] = [];
  // A thousand a second, at times that do not follow the turns to sweep.
  for (let made = 0; made < 8_000; made += size) {
    await Promise.all(Array.from({ length: size }, (_, index) => hold(`${made + index}`, { ttlMs: 100 })));
    timed.client.us += size * 1_000 - 37 + (made % 71);
    if (made % 1_000 === 0) found.push(await timed.redis.hlen(LOCKS));
  }
  // Those of the last 1.1 s are not to be swept yet.
  expect(Math.max(...found)).toBeLessThan(3_500);
});

test("redis: a sweep fails nobody who has no right to what is swept", async () => {
  await share("left by two");
  passTo(OVER_MS, true);
  const { username, password } = await createUser(
    [timed.server],
    "tenant",
    "resetkeys",
    "~*:locks",
    "~*:partitions",
  );
  const limited = new Redis({ host: "127.0.0.1", port: timed.server.port, username, password });
  const tenant = new TimedClient(limited, timedScript(SCRIPT, { sweeps: true }));
  tenant.us = timed.client.us;
  const theirs = redisStore(tenant);
  const held = claimRequest("a", { key: "held" });
  expect(await theirs.acquire(held)).toMatchObject({ state: "held" });
  for (let turn = 0; turn < SWEEPS; turn++) {
    expect(await theirs.renew([held])).toMatchObject([{ state: "held" }]);
  }
  expect(await kept()).toEqual(["held"]);
  await theirs.close();
  limited.disconnect();
});

/**
 * The interleaving: a record is spread, and all of its claims expire. Redis drops its sets, but not the field that tells what they
 * weigh. If that were believed, a lock that nobody has would be refused.
 */
test("redis: a record whose sets are gone weighs nothing, whether its time is over or was set back", async () => {
  for (const ms of [OVER_MS, 0]) {
    await timed.redis.flushall();
    passTo(0);
    await share("left by two");
    await timed.redis.del(...(await timed.redis.keys("*:left by two")));
    passTo(ms);
    const answer = await timed.store.acquire(
      claimRequest("c", { key: "left by two", limit: 1, wait: false }),
    );
    expect(answer.state).toBe("held");
    expect(await timed.store.release([claimRequest("c", { key: "left by two" })])).toEqual([true]);
    expect(await kept()).toEqual([]);
  }
});
