import { expect, describe as suite, test } from "vitest";
import {
  acquire,
  emptyRecord,
  isIdle,
  type RecordClaim,
  release,
  renew,
  settle,
  type Turn,
} from "../../src/record/record.ts";
import { describe } from "../../src/record/view.ts";
import { type AcquireAnswer, type ClaimRequest, UNLIMITED } from "../../src/store/store.ts";
import { claimRequest } from "./claim-request.ts";
import { assertInvariants } from "./invariants.ts";

/** A record with a clock, and the ids that the latest operation granted. */
function createKey(maxWaiters = 100) {
  const record = emptyRecord();
  /** `unsureMs`: by how much the store's time is uncertain. */
  const at = { nowMs: 1_000, unsureMs: 0, stamp: 0n };
  let granted: readonly RecordClaim[] = [];
  function operate<T>(operation: (turn: Turn) => T): T {
    const { nowMs, unsureMs, stamp } = at;
    const turn = { nowMs, expiredMs: nowMs - unsureMs, stamp, granted: [] };
    const result = operation(turn);
    granted = turn.granted;
    assertInvariants(record);
    return result;
  }
  return {
    record,
    at,
    granted: () => granted.map((claim) => claim.id),
    acquire: (id: string, asked: Partial<ClaimRequest> = {}) =>
      operate((turn) => acquire(record, claimRequest(id, asked), maxWaiters, turn)),
    tryAcquire: (id: string, asked: Partial<ClaimRequest> = {}) =>
      operate((turn) => acquire(record, claimRequest(id, { ...asked, wait: false }), maxWaiters, turn)),
    renew: (id: string, asked: { token?: string; ttlMs?: number } = {}) =>
      operate((turn) => renew(record, { key: "k", id, token: id, ...asked }, turn)),
    release: (id: string, token = id) => operate((turn) => release(record, { key: "k", id, token }, turn)),
    forceRelease: (id: string) => operate((turn) => release(record, { key: "k", id }, turn)),
    settle: () => operate((turn) => settle(record, turn)),
    describe: (maxClaims = 100) => describe(record, "k", at.nowMs, maxClaims),
    holders: () => describe(record, "k", at.nowMs, 100).held.map((claim) => claim.id),
    queue: () => describe(record, "k", at.nowMs, 100).waiting.map((claim) => claim.id),
  };
}

const shared = { limit: UNLIMITED };
const permits = (weight: number, limit: number) => ({ weight, limit });

function fenceOf(answer: { readonly state: string }): bigint {
  if (answer.state !== "held") throw new Error(`expected a held claim, not ${answer.state}`);
  return (answer as AcquireAnswer & { state: "held" }).fence;
}

suite("record: what can be held together", () => {
  test("record: a wide claim stays out while the tightest of several holders is there", () => {
    const key = createKey();
    key.acquire("wide", permits(1, 9));
    key.acquire("tight", permits(1, 3));
    key.acquire("other", permits(1, 8));
    expect(key.tryAcquire("d", permits(1, 9)).state).toBe("refused");
    key.release("tight");
    expect(key.tryAcquire("d", permits(1, 9)).state).toBe("held");
  });

  test("record: one release lets in everybody who now fits", () => {
    const key = createKey();
    key.acquire("w");
    for (const id of ["r1", "r2", "r3"]) key.acquire(id, shared);
    key.release("w");
    expect(key.granted()).toEqual(["r1", "r2", "r3"]);
  });
});

suite("record: waiters are bounded", () => {
  test("record: a full queue refuses a higher priority as well", () => {
    const key = createKey(1);
    key.acquire("a");
    key.acquire("b");
    expect(key.acquire("c", { priority: 1 })).toEqual({ state: "refused", reason: "queue-full" });
    expect(key.queue()).toEqual(["b"]);
  });

  test("record: a try in a full queue is contended, for it would not have waited", () => {
    const key = createKey(0);
    key.acquire("a");
    expect(key.tryAcquire("b")).toEqual({ state: "refused", reason: "contended" });
    expect(key.acquire("b")).toEqual({ state: "refused", reason: "queue-full" });
  });

  test("record: without any waiters allowed, a free key is still held", () => {
    expect(createKey(0).acquire("a").state).toBe("held");
  });

  test("record: a waiter that asks again in a full queue keeps waiting", () => {
    const key = createKey(1);
    key.acquire("a");
    key.acquire("b");
    expect(key.acquire("b").state).toBe("waiting");
  });

  test("record: an expired waiter makes room", () => {
    const key = createKey(1);
    key.acquire("a", { ttlMs: 1_000 });
    key.acquire("b", { ttlMs: 10 });
    key.at.nowMs += 10;
    expect(key.acquire("c").state).toBe("waiting");
    expect(key.queue()).toEqual(["c"]);
  });
});

suite("record: expiry", () => {
  test("record: a holder is there one millisecond before its end", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.at.nowMs += 99;
    expect(key.renew("a").state).toBe("held");
  });

  test("record: a holder whose end is exactly now is gone", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.at.nowMs += 100;
    expect(key.renew("a")).toEqual({ state: "gone" });
    expect(isIdle(key.record)).toBe(true);
  });

  test("record: a waiter whose end is exactly now is gone", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 1_000 });
    key.acquire("b", { ttlMs: 100 });
    key.at.nowMs += 99;
    key.settle();
    expect(key.record.queue).toHaveLength(1);
    key.at.nowMs += 1;
    key.settle();
    expect(key.record.queue).toHaveLength(0);
  });

  test("record: whoever asks first after a holder expired brings the head its grant", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.acquire("b", { ttlMs: 500 });
    key.acquire("c", { ttlMs: 500 });
    key.at.nowMs += 100;
    expect(key.renew("c").state).toBe("waiting");
    expect(key.granted()).toEqual(["b"]);
  });

  test("record: a dead head is passed over", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.acquire("dead", { ttlMs: 50 });
    key.acquire("c", { ttlMs: 500 });
    key.at.nowMs += 100;
    key.settle();
    expect(key.granted()).toEqual(["c"]);
  });

  test("record: a head that expires without a holder expiring lets in who it kept out", () => {
    const key = createKey();
    key.acquire("r1", { ...shared, ttlMs: 500 });
    key.acquire("w", { ttlMs: 50 });
    key.acquire("r2", { ...shared, ttlMs: 500 });
    key.at.nowMs += 50;
    key.settle();
    expect(key.granted()).toEqual(["r2"]);
  });

  test("record: several claims that end together are dropped together", () => {
    const key = createKey();
    for (const id of ["r1", "r2", "r3"]) key.acquire(id, shared);
    key.acquire("w", { ttlMs: 200 });
    key.at.nowMs += 100;
    key.settle();
    expect(key.granted()).toEqual(["w"]);
    expect(key.record.heldWeight).toBe(1);
  });
});

suite("record: renewal", () => {
  test("record: a renewal may ask for a longer life, this once", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    expect(key.renew("a", { ttlMs: 400 })).toMatchObject({ expiresInMs: 400 });
    key.at.nowMs += 350;
    expect(key.renew("a")).toMatchObject({ expiresInMs: 100 });
    expect(key.describe().held[0]).toMatchObject({ ttlMs: 100 });
  });

  test("record: renewing one holder leaves the others to expire in their own time", () => {
    const key = createKey();
    key.acquire("r1", { ...shared, ttlMs: 100 });
    key.acquire("r2", { ...shared, ttlMs: 110 });
    key.acquire("r3", { ...shared, ttlMs: 120 });
    key.renew("r1", { ttlMs: 300 });
    key.at.nowMs += 110;
    expect(key.holders()).toEqual(["r1", "r3"]);
    key.settle();
    expect(key.record.held).toHaveLength(2);
  });

  test("record: an unknown claim and another caller's claim are gone alike", () => {
    const key = createKey();
    key.acquire("a", { token: "mine" });
    expect(key.renew("nobody")).toEqual({ state: "gone" });
    expect(key.renew("a", { token: "theirs" })).toMatchObject({ state: "gone", takenOverBy: "" });
    key.at.nowMs += 99;
    expect(key.renew("a", { token: "mine" })).toMatchObject({ state: "held", expiresInMs: 100 });
  });

  test("record: an administrator renews whoever holds the claim", () => {
    const key = createKey();
    key.acquire("a", { token: "secret" });
    const answer = renew(
      key.record,
      { key: "k", id: "a" },
      { nowMs: 1_000, expiredMs: 1_000, stamp: 0n, granted: [] },
    );
    expect(answer.state).toBe("held");
  });
});

suite("record: when a waiter should ask again", () => {
  test("record: the head asks when the first holder could have expired", () => {
    const key = createKey();
    key.acquire("r1", { ...shared, ttlMs: 300 });
    key.acquire("r2", { ...shared, ttlMs: 200 });
    expect(key.acquire("w", { ttlMs: 900 })).toEqual({
      state: "waiting",
      expiresInMs: 900,
      retryInMs: 200,
      fence: 2n,
    });
  });

  test("record: who stands behind leaves it to the head while that lives", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 200 });
    key.acquire("head", { ttlMs: 700 });
    expect(key.acquire("behind", { ttlMs: 900 })).toEqual({
      state: "waiting",
      expiresInMs: 900,
      retryInMs: 700,
      fence: 1n,
    });
  });

  test("record: who stands behind a head that dies before the holder asks when the holder could have expired", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 200 });
    key.acquire("head", { ttlMs: 50 });
    key.at.nowMs += 10;
    expect(key.acquire("behind", { ttlMs: 900 })).toMatchObject({ retryInMs: 190 });
    expect(key.renew("behind")).toMatchObject({ retryInMs: 190 });
    expect(key.renew("head")).toMatchObject({ retryInMs: 190 });
  });

  test("record: a newcomer of higher priority is told what a head is told", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 200 });
    key.acquire("b", { ttlMs: 700 });
    expect(key.acquire("urgent", { priority: 1, ttlMs: 800 })).toMatchObject({ retryInMs: 200 });
    expect(key.renew("b")).toMatchObject({ retryInMs: 800 });
  });
});

suite("record: asking again with the same id", () => {
  test("record: a late copy of another call's try leaves a waiter where it is", () => {
    const key = createKey();
    key.acquire("holder");
    key.acquire("x", { token: "second" });
    key.acquire("y");
    expect(key.tryAcquire("x", { token: "first" })).toEqual({ state: "refused", reason: "contended" });
    expect(key.queue()).toEqual(["x", "y"]);
    expect(key.renew("x", { token: "second" }).state).toBe("waiting");
  });

  test("record: a retried try that holds the key holds it still", () => {
    const key = createKey();
    const first = key.tryAcquire("a");
    expect(key.tryAcquire("a")).toEqual(first);
  });

  test("record: after a takeover the earlier caller can neither renew nor release", () => {
    const key = createKey();
    key.acquire("a", { token: "first" });
    key.acquire("a", { token: "second" });
    expect(key.renew("a", { token: "first" })).toMatchObject({ state: "gone", takenOverBy: "" });
    expect(key.release("a", "first")).toBe(false);
    expect(key.release("a", "second")).toBe(true);
  });

  test("record: a lease that was taken over and released is nobody's until its former holder's time is up", () => {
    const key = createKey();
    key.acquire("a", { token: "former", ttlMs: 100 });
    key.acquire("b");
    key.at.nowMs += 40;
    key.acquire("a", { token: "latter", ttlMs: 500 });
    expect(key.release("a", "latter")).toBe(true);
    expect(key.renew("a", { token: "latter" }).state).toBe("gone");
    expect(key.renew("a", { token: "former" }).state).toBe("gone");
    key.at.nowMs += 59;
    expect(key.renew("b")).toMatchObject({ state: "waiting", retryInMs: 1 });
    key.at.nowMs += 1;
    expect(key.renew("b")).toMatchObject({ state: "held", fence: 3n });
  });

  test("record: a lease that was taken over is free at once when the former holder's time is up", () => {
    const key = createKey();
    key.acquire("a", { token: "former", ttlMs: 100 });
    key.acquire("b", { ttlMs: 1_000 });
    key.acquire("a", { token: "latter", ttlMs: 500 });
    key.at.nowMs += 100;
    expect(key.release("a", "latter")).toBe(true);
    expect(key.renew("b")).toMatchObject({ state: "held" });
  });

  test("record: force ends a lease that was taken over, whoever may believe in it", () => {
    const key = createKey();
    key.acquire("a", { token: "former" });
    key.acquire("a", { token: "latter" });
    expect(key.forceRelease("a")).toBe(true);
    expect(key.describe().heldCount).toBe(0);
  });

  test("record: nobody's lease can be taken over again with its id", () => {
    const key = createKey();
    key.acquire("a", { token: "former" });
    key.acquire("a", { token: "latter" });
    key.release("a", "latter");
    expect(key.acquire("a", { token: "third" })).toMatchObject({ state: "held", fence: 3n });
  });

  test("record: asking again with a shorter ttl shortens the claim only from its next renewal on", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    expect(key.acquire("a", { ttlMs: 20 })).toMatchObject({ expiresInMs: 100 });
    key.at.nowMs += 90;
    expect(key.renew("a")).toMatchObject({ expiresInMs: 20 });
  });

  test.each([
    ["weight", permits(2, 5)],
    ["limit", permits(1, 6)],
    ["priority", { ...permits(1, 5), priority: 1 }],
  ])("record: the same id with another %s is refused and changes nothing", (_, other) => {
    const key = createKey();
    key.acquire("a", permits(1, 5));
    const before = key.describe();
    expect(key.acquire("a", { ...other, token: "other", ttlMs: 900 })).toEqual({
      state: "refused",
      reason: "id-reused",
    });
    expect(key.describe()).toEqual(before);
    expect(key.release("a")).toBe(true);
  });

  test("record: a head that leaves by a try lets in who it kept out", () => {
    const key = createKey();
    key.acquire("r1", shared);
    key.acquire("w");
    key.acquire("r2", shared);
    expect(key.tryAcquire("w").state).toBe("refused");
    expect(key.granted()).toEqual(["r2"]);
  });

  test("record: a claim that expired is a new one at the end of the queue when asked for again", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 900 });
    key.acquire("b", { ttlMs: 50 });
    key.acquire("c", { ttlMs: 900 });
    key.at.nowMs += 50;
    expect(key.acquire("b", { token: "again", priority: 0 }).state).toBe("waiting");
    expect(key.queue()).toEqual(["c", "b"]);
  });
});

suite("record: release", () => {
  test("record: a waiter leaves, and a head that leaves lets in who it kept out", () => {
    const key = createKey();
    key.acquire("r1", shared);
    key.acquire("w");
    key.acquire("r2", shared);
    expect(key.release("w")).toBe(true);
    expect(key.granted()).toEqual(["r2"]);
  });

  test("record: a record is idle only without holders and waiters", () => {
    const key = createKey();
    expect(isIdle(key.record)).toBe(true);
    key.acquire("a");
    expect(isIdle(key.record)).toBe(false);
    key.acquire("b");
    key.release("b");
    expect(isIdle(key.record)).toBe(false);
    key.release("a");
    expect(isIdle(key.record)).toBe(true);
  });
});

suite("record: fences", () => {
  test("record: a fence is at least the store's stamp", () => {
    const key = createKey();
    key.at.stamp = 70n;
    expect(fenceOf(key.acquire("a", shared))).toBe(70n);
    expect(fenceOf(key.acquire("b", shared))).toBe(71n);
  });

  test("record: fences grow by one while the stamp stands still or goes back", () => {
    const key = createKey();
    key.at.stamp = 70n;
    key.acquire("a", shared);
    key.at.stamp = 71n;
    expect(fenceOf(key.acquire("b", shared))).toBe(71n);
    key.at.stamp = 3n;
    expect(fenceOf(key.acquire("c", shared))).toBe(72n);
  });
});

suite("record: describe", () => {
  test("record: holders are shown in order of grant and waiters in order of turn", () => {
    const key = createKey();
    // Lives that grow shorter put the claims in another order inside than they were granted in.
    for (const [index, id] of ["a", "b", "c", "d"].entries()) {
      key.acquire(id, { ...shared, ttlMs: 900 - index * 100 });
    }
    for (const [index, id] of ["w", "x", "y", "z"].entries()) {
      key.acquire(id, { ttlMs: 900 - index * 100, priority: index === 3 ? 1 : 0 });
    }
    expect(key.holders()).toEqual(["a", "b", "c", "d"]);
    expect(key.queue()).toEqual(["z", "w", "x", "y"]);
  });

  test("record: a taken-over claim is shown as the latest grant", () => {
    const key = createKey();
    key.acquire("a", shared);
    key.acquire("b", shared);
    key.acquire("a", { ...shared, token: "other" });
    expect(key.holders()).toEqual(["b", "a"]);
  });

  test("record: what has expired is not shown, and stays until an operation drops it", () => {
    const key = createKey();
    key.acquire("a", { ...shared, ttlMs: 100 });
    key.acquire("b", { ...shared, ttlMs: 300 });
    key.acquire("w", { ttlMs: 100 });
    key.acquire("x", { ttlMs: 300 });
    key.at.nowMs += 100;
    expect(key.describe()).toMatchObject({
      held: [{ id: "b" }],
      heldCount: 1,
      heldWeight: 1,
      waiting: [{ id: "x" }],
      waitingCount: 1,
    });
    expect(key.record.held).toHaveLength(2);
    expect(key.record.queue).toHaveLength(2);
  });

  test("record: a waiter whose turn has come is shown as waiting until somebody asks", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.acquire("b", { ttlMs: 300 });
    key.at.nowMs += 100;
    expect(key.describe()).toMatchObject({ held: [], waiting: [{ id: "b", state: "waiting" }] });
  });
});

suite("record: the index of ids", () => {
  test("record: up to eight claims are searched one by one, and the ninth builds the index", () => {
    const key = createKey();
    for (let n = 1; n <= 8; n += 1) key.acquire(`c${n}`);
    expect(key.record.byId).toBeUndefined();
    key.acquire("c9");
    expect([...(key.record.byId?.values() ?? [])].map((claim) => claim.id).sort()).toEqual(
      Array.from({ length: 9 }, (_, index) => `c${index + 1}`),
    );
  });

  test("record: claims are found, replaced and forgotten through the index", () => {
    const key = createKey();
    for (let n = 1; n <= 12; n += 1) key.acquire(`c${n}`, shared);
    expect(key.acquire("c3", shared)).toMatchObject({ fence: 3n });
    expect(key.release("c3")).toBe(true);
    expect(key.renew("c3")).toEqual({ state: "gone" });
    expect(fenceOf(key.acquire("c3", shared))).toBe(13n);
  });
});

suite("record: where the store's time is known only within bounds", () => {
  test("record: a claim is dropped when the earliest time that it can be has reached its end", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.at.nowMs += 130;
    key.at.unsureMs = 31;
    expect(key.tryAcquire("b").state).toBe("refused");
    key.at.unsureMs = 30;
    expect(key.tryAcquire("b").state).toBe("held");
  });

  test("record: a life is counted from the latest time that it can be, and told as what is left by then", () => {
    const key = createKey();
    key.at.unsureMs = 40;
    expect(key.acquire("a", { ttlMs: 100 })).toMatchObject({ expiresInMs: 100, acquiredAtMs: 1_000 });
    expect(key.record.held[0]?.expiresAtMs).toBe(1_100);
  });

  test("record: a waiter is told to ask again when the holder has certainly expired", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.at.unsureMs = 40;
    expect(key.acquire("b", { ttlMs: 300 })).toMatchObject({ expiresInMs: 300, retryInMs: 140 });
  });

  test("record: a lease that was taken over stays nobody's while its former holder's time may not be up", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.acquire("a", { ttlMs: 200, token: "a2" });
    key.at.nowMs += 110;
    key.at.unsureMs = 20;
    expect(key.release("a", "a2")).toBe(true);
    expect(key.tryAcquire("b").state).toBe("refused");
    key.at.unsureMs = 10;
    expect(key.tryAcquire("b").state).toBe("held");
  });
});
