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
  test("record: a free key is held at once", () => {
    const key = createKey();
    expect(key.acquire("a")).toEqual({ state: "held", fence: 1n, acquiredAtMs: 1_000, expiresInMs: 100 });
    expect(key.granted()).toEqual(["a"]);
  });

  test("record: an exclusive claim keeps others waiting", () => {
    const key = createKey();
    key.acquire("a");
    expect(key.acquire("b").state).toBe("waiting");
    expect(key.granted()).toEqual([]);
    expect(key.holders()).toEqual(["a"]);
  });

  test("record: shared claims are held together, and an exclusive one waits for the last of them", () => {
    const key = createKey();
    key.acquire("r1", shared);
    key.acquire("r2", shared);
    key.acquire("w");
    expect(key.holders()).toEqual(["r1", "r2"]);
    key.release("r1");
    expect(key.holders()).toEqual(["r2"]);
    key.release("r2");
    expect(key.holders()).toEqual(["w"]);
  });

  test("record: a shared claim arriving behind a waiting exclusive one does not overtake it", () => {
    const key = createKey();
    key.acquire("r1", shared);
    key.acquire("w");
    expect(key.acquire("r2", shared).state).toBe("waiting");
    expect(key.tryAcquire("r3", shared)).toEqual({ state: "refused", reason: "contended" });
  });

  test("record: weights fill a limit exactly and not beyond", () => {
    const key = createKey();
    expect(key.acquire("a", permits(2, 5)).state).toBe("held");
    expect(key.acquire("b", permits(3, 5)).state).toBe("held");
    expect(key.acquire("c", permits(1, 5)).state).toBe("waiting");
    expect(key.record.heldWeight).toBe(5);
  });

  test("record: the tightest limit of all held claims counts, not only the asking one's", () => {
    const key = createKey();
    key.acquire("tight", permits(1, 2));
    expect(key.acquire("wide", permits(2, 9)).state).toBe("waiting");
    key.release("tight");
    expect(key.holders()).toEqual(["wide"]);
    expect(key.acquire("tight", permits(1, 2)).state).toBe("waiting");
  });

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

  test("record: a small claim does not slip past a big one at the head", () => {
    const key = createKey();
    key.acquire("a", permits(3, 4));
    key.acquire("big", permits(4, 4));
    expect(key.tryAcquire("small", permits(1, 4))).toEqual({ state: "refused", reason: "contended" });
    expect(key.acquire("small", permits(1, 4)).state).toBe("waiting");
  });
});

suite("record: order", () => {
  test("record: claims of equal priority are served in order of arrival", () => {
    const key = createKey();
    for (const id of ["a", "b", "c", "d"]) key.acquire(id);
    expect(key.queue()).toEqual(["b", "c", "d"]);
    for (const id of ["a", "b", "c"]) key.release(id);
    expect(key.holders()).toEqual(["d"]);
  });

  test("record: a higher priority goes first, whenever it came", () => {
    const key = createKey();
    key.acquire("holder");
    key.acquire("low");
    key.acquire("high", { priority: 9 });
    key.acquire("middle", { priority: 5 });
    key.acquire("high2", { priority: 9 });
    expect(key.queue()).toEqual(["high", "high2", "middle", "low"]);
    key.release("holder");
    expect(key.granted()).toEqual(["high"]);
  });

  test("record: a try of higher priority goes past the queue where it fits", () => {
    const key = createKey();
    key.acquire("a", permits(2, 3));
    key.acquire("big", permits(3, 3));
    expect(key.tryAcquire("urgent", { ...permits(1, 3), priority: 1 }).state).toBe("held");
  });

  test("record: a refused try leaves nothing behind", () => {
    const key = createKey();
    key.acquire("a");
    expect(key.tryAcquire("b")).toEqual({ state: "refused", reason: "contended" });
    expect(key.queue()).toEqual([]);
    expect(key.renew("b")).toEqual({ state: "gone" });
    key.release("a");
    expect(key.granted()).toEqual([]);
  });

  test("record: asking again keeps the place in the queue", () => {
    const key = createKey();
    for (const id of ["a", "b", "c"]) key.acquire(id);
    key.acquire("b");
    expect(key.queue()).toEqual(["b", "c"]);
  });
});

suite("record: waiters are bounded", () => {
  test("record: as many may wait as allowed, and the next is told that the queue is full", () => {
    const key = createKey(2);
    key.acquire("a");
    expect(key.acquire("b").state).toBe("waiting");
    expect(key.acquire("c").state).toBe("waiting");
    expect(key.acquire("d")).toEqual({ state: "refused", reason: "queue-full" });
    expect(key.queue()).toEqual(["b", "c"]);
  });

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

  test("record: being granted does not prolong a claim", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 500 });
    key.acquire("b", { ttlMs: 100 });
    key.at.nowMs += 60;
    key.release("a");
    expect(key.renew("b", { ttlMs: 1 })).toMatchObject({
      state: "held",
      acquiredAtMs: 1_060,
      expiresInMs: 40,
    });
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
  test("record: a renewal counts the claim's own ttl from now", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.at.nowMs += 30;
    expect(key.renew("a")).toEqual({ state: "held", fence: 1n, acquiredAtMs: 1_000, expiresInMs: 100 });
  });

  test("record: a renewal prolongs a waiter alike", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 500 });
    key.acquire("b", { ttlMs: 100 });
    key.at.nowMs += 60;
    expect(key.renew("b")).toMatchObject({ state: "waiting", expiresInMs: 100 });
    key.at.nowMs += 99;
    expect(key.queue()).toEqual(["b"]);
  });

  test("record: a renewal may ask for a longer life, this once", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    expect(key.renew("a", { ttlMs: 400 })).toMatchObject({ expiresInMs: 400 });
    key.at.nowMs += 350;
    expect(key.renew("a")).toMatchObject({ expiresInMs: 100 });
    expect(key.describe().held[0]).toMatchObject({ ttlMs: 100 });
  });

  test("record: a renewal never shortens a life", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    expect(key.renew("a", { ttlMs: 10 })).toMatchObject({ expiresInMs: 100 });
    key.at.nowMs += 90;
    expect(key.renew("a", { ttlMs: 10 })).toMatchObject({ expiresInMs: 10 });
    expect(key.renew("a", { ttlMs: 11 })).toMatchObject({ expiresInMs: 11 });
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
  test("record: a retry of the same call is the same claim with the same fence", () => {
    const key = createKey();
    const first = key.acquire("a");
    key.at.nowMs += 40;
    expect(key.acquire("a")).toEqual({ ...first, expiresInMs: 100 });
    expect(key.granted()).toEqual([]);
    expect(key.describe().heldCount).toBe(1);
  });

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

  test("record: another call with the id takes a held claim over with a new fence", () => {
    const key = createKey();
    key.acquire("a", { token: "first", owner: "x", info: "old", application: "one", ttlMs: 100 });
    key.at.nowMs += 10;
    const answer = key.acquire("a", {
      token: "second",
      owner: "y",
      info: "new",
      application: "two",
      ttlMs: 200,
    });
    expect(answer).toEqual({ state: "held", fence: 2n, acquiredAtMs: 1_010, expiresInMs: 200 });
    expect(key.describe().held).toMatchObject([
      { owner: "y", info: "new", application: "two", ttlMs: 200, fence: 2n },
    ]);
    expect(key.granted()).toEqual([]);
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

  test("record: a waiting claim is taken over in its place, without a fence", () => {
    const key = createKey();
    key.acquire("holder");
    key.acquire("a", { token: "first" });
    key.acquire("b");
    expect(key.acquire("a", { token: "second" }).state).toBe("waiting");
    expect(key.record.fence).toBe(1n);
    expect(key.queue()).toEqual(["a", "b"]);
    expect(key.renew("a", { token: "first" })).toMatchObject({ state: "gone", takenOverBy: "" });
    key.release("holder");
    expect(key.renew("a", { token: "second" })).toMatchObject({ state: "held", fence: 2n });
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

  test("record: a waiter that tries instead leaves the queue", () => {
    const key = createKey();
    key.acquire("a");
    key.acquire("b");
    expect(key.tryAcquire("b")).toEqual({ state: "refused", reason: "contended" });
    expect(key.queue()).toEqual([]);
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
  test("record: a release hands the key to the head", () => {
    const key = createKey();
    key.acquire("a");
    key.acquire("b");
    expect(key.release("a")).toBe(true);
    expect(key.granted()).toEqual(["b"]);
    expect(key.holders()).toEqual(["b"]);
  });

  test("record: a late release does not free the next holder", () => {
    const key = createKey();
    key.acquire("a", { ttlMs: 100 });
    key.acquire("b", { ttlMs: 500 });
    key.at.nowMs += 100;
    expect(key.release("a")).toBe(false);
    expect(key.holders()).toEqual(["b"]);
  });

  test("record: a second release says that nothing was there", () => {
    const key = createKey();
    key.acquire("a");
    expect(key.release("a")).toBe(true);
    expect(key.release("a")).toBe(false);
  });

  test("record: a waiter leaves, and a head that leaves lets in who it kept out", () => {
    const key = createKey();
    key.acquire("r1", shared);
    key.acquire("w");
    key.acquire("r2", shared);
    expect(key.release("w")).toBe(true);
    expect(key.granted()).toEqual(["r2"]);
  });

  test("record: an administrator releases without knowing the token", () => {
    const key = createKey();
    key.acquire("a", { token: "secret" });
    expect(key.forceRelease("nobody")).toBe(false);
    expect(key.forceRelease("a")).toBe(true);
    expect(isIdle(key.record)).toBe(true);
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

  test("record: a fence survives its claim", () => {
    const key = createKey();
    key.acquire("a");
    key.release("a");
    expect(key.describe().fence).toBe(1n);
    expect(fenceOf(key.acquire("a"))).toBe(2n);
  });

  test("record: claims granted together get fences in the order of the queue", () => {
    const key = createKey();
    key.acquire("w");
    key.acquire("r1", shared);
    key.acquire("r2", { ...shared, priority: 1 });
    key.release("w");
    expect(key.describe().held.map(({ id, fence }) => [id, fence])).toEqual([
      ["r2", 2n],
      ["r1", 3n],
    ]);
  });
});

suite("record: describe", () => {
  test("record: a claim is shown with all but its token", () => {
    const key = createKey();
    const label = { owner: "o", info: "i", application: "app" };
    key.acquire("a", { ...permits(2, 3), ...label, token: "secret", ttlMs: 100, priority: 7 });
    key.acquire("b", { ...permits(3, 3), ttlMs: 200 });
    key.at.nowMs += 30;
    expect(key.describe()).toEqual({
      key: "k",
      fence: 1n,
      held: [
        {
          id: "a",
          state: "held",
          weight: 2,
          limit: 3,
          priority: 7,
          ttlMs: 100,
          owner: "o",
          info: "i",
          application: "app",
          expiresInMs: 70,
          fence: 1n,
          acquiredAtMs: 1_000,
        },
      ],
      heldCount: 1,
      heldWeight: 2,
      waiting: [
        {
          id: "b",
          state: "waiting",
          weight: 3,
          limit: 3,
          priority: 0,
          ttlMs: 200,
          owner: "",
          info: "",
          application: "",
          expiresInMs: 170,
        },
      ],
      waitingCount: 1,
    });
  });

  test("record: an unknown key is described as empty", () => {
    const status = describe(emptyRecord(), "k", 5, 10);
    const counts = { heldCount: 0, heldWeight: 0, waitingCount: 0 };
    expect(status).toEqual({ key: "k", fence: 0n, held: [], waiting: [], ...counts });
  });

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

  test("record: long lists are cut from their beginning, and the counts are whole", () => {
    const key = createKey();
    for (const id of ["a", "b", "c"]) key.acquire(id, shared);
    for (const id of ["w", "x", "y"]) key.acquire(id);
    const status = key.describe(2);
    expect(status.held.map((claim) => claim.id)).toEqual(["a", "b"]);
    expect(status.waiting.map((claim) => claim.id)).toEqual(["w", "x"]);
    expect(status).toMatchObject({ heldCount: 3, heldWeight: 3, waitingCount: 3 });
    expect(key.describe(0)).toMatchObject({ held: [], waiting: [], heldCount: 3, waitingCount: 3 });
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
