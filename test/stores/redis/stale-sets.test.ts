/**
 * A lock that several claims share is a field of the partition's hash and five sets of its own. They can part: a field is deleted, as an
 * error may have advised, or evicted with its hash; a set is evicted; an operation fails when some are written. What is then left
 * may neither make anybody a holder nor let in more than the limit.
 */
import type { ClaimRequest, HeldAnswer } from "holdfast";
import { describe, expect, test } from "vitest";
import type { QuorumMember } from "../../../src/store/index.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { START_US } from "./differential-histories.ts";
import { timedStore } from "./timed-store.ts";

const LOCKS = "holdfast:{0}:locks";

const timed = timedStore();

function passTo(ms: number): void {
  timed.client.us = START_US + ms * 1_000;
}

async function ask(id: string, changes: Partial<ClaimRequest> = {}): Promise<string> {
  return (await timed.store.acquire(claimRequest(id, { key: "k", ttlMs: 60_000, ...changes }))).state;
}

async function stateOf(id: string): Promise<string | undefined> {
  return (await timed.store.renew([{ key: "k", id, token: id }]))[0]?.state;
}

const release = (id: string) => timed.store.release([claimRequest(id, { key: "k" })]);

test("redis: a waiter of a lock whose field was deleted is not granted beside the next holder", async () => {
  expect([await ask("former"), await ask("its waiter")]).toEqual(["held", "waiting"]);
  await timed.redis.hdel(LOCKS, "k");
  expect([await ask("next"), await ask("behind it")]).toEqual(["held", "waiting"]);
  await release("former");
  expect(await stateOf("its waiter")).toBe("gone");
  expect([await stateOf("next"), await stateOf("behind it")]).toEqual(["held", "waiting"]);
});

test("redis: the end of a holder whose hash was lost makes no room beside the next one", async () => {
  expect([await ask("former", { ttlMs: 5_000 }), await ask("its waiter")]).toEqual(["held", "waiting"]);
  await timed.redis.del(LOCKS);
  expect([await ask("next"), await ask("behind it")]).toEqual(["held", "waiting"]);
  passTo(5_000);
  expect(await stateOf("behind it")).toBe("waiting");
});

test("redis: what an operation wrote before it failed counts for nobody", async () => {
  const two = { limit: 2, wait: false };
  expect(await ask("former", { ...two, ttlMs: 1_000 })).toBe("held");
  const mark = await timed.redis.hget(LOCKS, "");
  await timed.redis.hset(LOCKS, "", "not ours");
  await expect(ask("fails", two)).rejects.toMatchObject({ code: "STORE_FAILURE" });
  await timed.redis.hset(LOCKS, "", String(mark));
  expect(await release("former")).toEqual([true]);
  passTo(2_000);
  expect([await ask("1", two), await ask("2", two), await ask("3", two)]).toEqual([
    "held",
    "held",
    "refused",
  ]);
});

test("redis: a holder whose limit was evicted is gone, instead of beside others", async () => {
  expect([await ask("writer"), await ask("waiter")]).toEqual(["held", "waiting"]);
  await release("waiter");
  await timed.redis.del("holdfast:{0}:limits:k");
  expect(await ask("reader", { limit: 100, wait: false })).toBe("held");
  expect(await stateOf("writer")).toBe("gone");
});

describe.each(["claims", "held", "limits", "waiting", "queue"])("redis: a lock whose %s are lost", (part) => {
  // 1. "holder" holds, "waiter" waits. 2. One part is evicted. 3. Somebody else asks.
  const lose = async () => {
    expect([await ask("holder"), await ask("waiter")]).toEqual(["held", "waiting"]);
    expect(await timed.redis.del(`holdfast:{0}:${part}:k`)).toBe(1);
  };

  test("is free, and all of its claims are gone", async () => {
    await lose();
    expect(await ask("next")).toBe("held");
    expect([await stateOf("holder"), await stateOf("waiter")]).toEqual(["gone", "gone"]);
    expect([await ask("waiter"), await stateOf("next")]).toEqual(["waiting", "held"]);
  });

  test("has nobody to look at", async () => {
    await lose();
    const [seen] = (await timed.store.look({ key: "k", maxClaims: 10 })).keys;
    expect(seen).toMatchObject({ heldCount: 0, waitingCount: 0, held: [], waiting: [] });
  });

  test("has no grant to confirm", async () => {
    const { fence } = (await timed.store.acquire(
      claimRequest("holder", { key: "k", ttlMs: 60_000 }),
    )) as HeldAnswer;
    await lose();
    const agreed = { fence: fence + 1n, acquiredAtMs: 1 };
    const ref = { key: "k", id: "holder", token: "holder" };
    expect(await (timed.store as QuorumMember).confirm(ref, fence, agreed)).toBe(false);
  });
});

test("redis: what was answered of a lock is not told when it could not be written with what follows", async () => {
  const two = { limit: 2, ttlMs: 1_000 };
  await ask("a", two);
  await ask("b", two);
  await release("b");
  passTo(900);
  await timed.redis.hset(LOCKS, "", "not ours");
  const [renewed, failed] = await Promise.allSettled([stateOf("a"), ask("c", two)]);
  const error = { reason: { code: "STORE_FAILURE", key: "k" } };
  expect([renewed, failed]).toMatchObject([error, error]);
});

test("redis: a mark above all fences is told, and gives nobody the fence of another", async () => {
  await timed.redis.hset(LOCKS, "", String(2 ** 53));
  const failure = { code: "STORE_FAILURE", message: expect.stringContaining(LOCKS) };
  await expect(ask("a")).rejects.toMatchObject(failure);
});
