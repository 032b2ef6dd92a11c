import { createLocks, HoldfastError, memoryStore, type QuorumMember, type Store } from "holdfast";
import { quorumStore, redlockStore } from "holdfast/redlock";
import type { Fault } from "holdfast/testing";
import { describe, expect, test } from "vitest";
import { Cluster, type LinkPlan } from "./cluster.ts";

const lost: Fault = { lose: "request" };
const hung: Fault = { lose: "request", hang: true };

function cut(nodes: readonly number[], fault: Fault): LinkPlan {
  return (node) => (nodes.includes(node) ? fault : undefined);
}

async function codeOf(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => undefined,
    (cause: unknown) => cause,
  );
  return error instanceof HoldfastError ? error.code : `${error}`;
}

async function renew(store: Store, ref: { key: string; id: string; token: string }) {
  const [answer] = await store.renew([{ key: ref.key, id: ref.id, token: ref.token }]);
  return answer;
}

describe("quorum: a majority decides", () => {
  // Nodes in all, nodes that may fail.
  for (const [nodes, spare] of [
    [1, 0],
    [2, 0],
    [3, 1],
    [4, 1],
    [5, 2],
  ] as const) {
    test(`${nodes} nodes go on with ${spare} of them gone, and not with one more`, async () => {
      const cluster = new Cluster(nodes);
      const request = cluster.mutex("key");
      const down = Array.from({ length: spare }, (_, node) => node);
      const enough = cluster.store({}, cut(down, lost));
      expect((await enough.acquire(request)).state).toBe("held");
      expect((await renew(enough, request))?.state).toBe("held");
      expect(await enough.acquire(cluster.mutex("key"))).toEqual({ state: "refused", reason: "contended" });
      expect(await enough.release([request])).toEqual([true]);

      const few = cluster.store({}, cut([...down, spare], lost));
      expect(await codeOf(few.acquire(cluster.mutex("other")))).toBe("STORE_UNAVAILABLE");
      expect(await codeOf(few.acquire(cluster.mutex("other", { wait: true })))).toBe("STORE_UNAVAILABLE");
      expect(await codeOf(few.renew([request]))).toBe("STORE_UNAVAILABLE");
      expect(await codeOf(few.release([request]))).toBe("STORE_UNAVAILABLE");
      expect(await codeOf(few.look({ key: "key", maxClaims: 1 }))).toBe("STORE_UNAVAILABLE");
    });
  }

  test("a hung node is not waited for where the others decide", async () => {
    const cluster = new Cluster(3);
    const store = cluster.store({}, cut([0], hung));
    const request = cluster.mutex("key");
    expect((await store.acquire(request)).state).toBe("held");
    expect(await store.acquire(cluster.mutex("key"))).toEqual({ state: "refused", reason: "contended" });
    expect(await store.release([request])).toEqual([true]);
  });

  test("a node counts as failed after nodeTimeoutMs, and its late grant is taken back", async () => {
    const cluster = new Cluster(3);
    const slow: LinkPlan = (node, { verb }) =>
      node === 0 && verb === "acquire" ? { beforeMs: 500 } : node === 1 ? hung : undefined;
    const store = cluster.store({ nodeTimeoutMs: 100 }, slow);
    const request = cluster.mutex("key");
    const acquiring = codeOf(store.acquire(request));
    await cluster.clock.advance(99);
    expect(await Promise.race([acquiring, "open"])).toBe("open");
    await cluster.clock.advance(1);
    expect(await acquiring).toBe("STORE_UNAVAILABLE");
    // The caller gives up, and then the request arrives.
    const releasing = codeOf(store.release([request]));
    await cluster.clock.advance(1_000);
    expect(await releasing).toBe("undefined");
    expect(await cluster.atAll("key")).toEqual(["", "", ""]);
  });

  // 1. A claim is held. It is asked for again through another store object, and a majority answers.
  // 2. It is released through the first one, everywhere.
  // 3. The other's request arrives at the last node, to which it is a new claim. Neither object has a reason to take it back:
  //    the first has heard nothing of it, and the other nothing of the release.
  test("a request that comes after the release, through another object, is in nobody's way and goes with its heartbeat", async () => {
    const cluster = new Cluster(3);
    const slow: LinkPlan = (node, { verb }) =>
      node === 2 && verb === "acquire" ? { beforeMs: 50 } : undefined;
    const [store, other] = [cluster.store(), cluster.store({}, slow)];
    const request = cluster.mutex("key");
    const held = await store.acquire(request);
    expect(await other.acquire(request)).toMatchObject(pick(held));
    expect(await store.release([request])).toEqual([true]);
    await cluster.clock.advance(50);
    expect(await cluster.atAll("key")).toEqual(["", "", "h"]);

    expect((await store.acquire(cluster.mutex("key"))).state).toBe("held");
    expect(await renew(other, request)).toEqual({ state: "gone" });
    await cluster.clock.advance(1);
    expect(await cluster.atAll("key")).toEqual(["h", "h", ""]);
  });

  test("an error that asking again would not mend is passed on as it is", async () => {
    const cluster = new Cluster(3);
    const error = new HoldfastError("UNAUTHORIZED", "No.");
    const store = cluster.store({}, () => ({ error }));
    await expect(store.acquire(cluster.mutex("key"))).rejects.toBe(error);
    const mixed = cluster.store({}, (node) => (node === 0 ? { error } : lost));
    expect(await codeOf(mixed.acquire(cluster.mutex("key")))).toBe("STORE_UNAVAILABLE");
  });

  test("a try that gets a minority leaves nothing behind", async () => {
    const cluster = new Cluster(5);
    const holder = cluster.mutex("key");
    await cluster.store({}, cut([0, 1], lost)).acquire(holder);
    expect(await cluster.atAll("key")).toEqual(["", "", "h", "h", "h"]);
    const store = cluster.store();
    expect(await store.acquire(cluster.mutex("key"))).toEqual({ state: "refused", reason: "contended" });
    expect(await cluster.atAll("key")).toEqual(["", "", "h", "h", "h"]);
  });

  test("an answer is valid for as long as a majority of nodes promises", async () => {
    const cluster = new Cluster(3);
    const request = cluster.mutex("key", { ttlMs: 1_000 });
    const store = cluster.store();
    await store.acquire(request);
    await cluster.clock.advance(400);
    const [one, two] = cluster.members as [QuorumMember, QuorumMember];
    await one.renew([{ ...request, ttlMs: 5_000 }]);
    expect(await renew(cluster.store({}, cut([2], lost)), request)).toMatchObject({ expiresInMs: 1_000 });
    await two.renew([{ ...request, ttlMs: 3_000 }]);
    expect(await renew(store, request)).toMatchObject({ expiresInMs: 3_000 });
  });

  test("a waiting claim that is released while it joins a node again leaves nothing there", async () => {
    const cluster = new Cluster(3);
    const holder = cluster.mutex("key");
    await cluster.store().acquire(holder);
    let slow = false;
    const store = cluster.store({}, (node, { verb }) =>
      slow && node === 0 && verb === "acquire" ? { beforeMs: 50 } : undefined,
    );
    const waiter = cluster.mutex("key", { wait: true });
    expect((await store.acquire(waiter)).state).toBe("waiting");
    cluster.empty(0);
    slow = true;
    const renewing = codeOf(store.renew([waiter]));
    await cluster.clock.advance(1);
    expect(await store.release([waiter])).toEqual([true]);
    await cluster.clock.advance(500);
    await renewing;
    expect(await cluster.atAll("key")).toEqual(["", "h", "h"]);
  });

  test("a lease that took longer to get than it lasts is not one", async () => {
    const cluster = new Cluster(3);
    const store = cluster.store({ nodeTimeoutMs: 1_000 }, (_, { verb }) =>
      verb === "acquire" ? { afterMs: 300 } : undefined,
    );
    const acquiring = codeOf(store.acquire(cluster.mutex("key", { ttlMs: 300 })));
    await cluster.clock.advance(300);
    expect(await acquiring).toBe("STORE_UNAVAILABLE");
  });
});

describe("quorum: renewal", () => {
  test("a node that came back empty gets the claim again, so a rolling restart loses nothing", async () => {
    const cluster = new Cluster(3);
    const store = cluster.store();
    const request = cluster.mutex("key");
    const first = await store.acquire(request);
    for (const node of [0, 1, 2]) {
      cluster.empty(node);
      expect(await renew(store, request)).toMatchObject({ state: "held", ...pick(first) });
      await cluster.clock.advance(1);
      expect(await cluster.atAll("key")).toEqual(["h", "h", "h"]);
      await cluster.clock.advance(500);
    }
    expect(await renew(store, request)).toMatchObject({ state: "held", ...pick(first) });
  });

  test("a lease that a majority has lost is gone, and what is left of it is removed", async () => {
    const cluster = new Cluster(3);
    const store = cluster.store();
    const request = cluster.mutex("key");
    await store.acquire(request);
    cluster.empty(0);
    cluster.empty(1);
    expect(await renew(store, request)).toEqual({ state: "gone" });
    await cluster.clock.advance(1);
    expect(await cluster.atAll("key")).toEqual(["", "", ""]);
  });

  test("a node that was granted the claim anew does not count for the lease that was lost", async () => {
    const cluster = new Cluster(3);
    const store = cluster.store();
    const request = cluster.mutex("key");
    await store.acquire(request);
    // Two nodes lose it, somebody else has the lock, and late copies of the first request are granted after that.
    cluster.empty(0);
    cluster.empty(1);
    const between = cluster.mutex("key");
    expect((await cluster.store().acquire(between)).state).toBe("held");
    await cluster.store().release([between]);
    for (const member of cluster.members.slice(0, 2)) await member.acquire(request);
    expect(await renew(store, request)).toEqual({ state: "gone" });
  });

  test("a lease is not called lost while the silent nodes may still hold it", async () => {
    const cluster = new Cluster(3);
    let silent = false;
    const store = cluster.store({}, (node) => (silent && node === 1 ? lost : undefined));
    const request = cluster.mutex("key");
    await store.acquire(request);
    cluster.empty(0);
    silent = true;
    expect(await codeOf(store.renew([request]))).toBe("STORE_UNAVAILABLE");
    silent = false;
    expect((await renew(store, request))?.state).toBe("held");
  });

  test("a claim that cannot be judged does not fail the others of its batch", async () => {
    const cluster = new Cluster(3);
    let silent = false;
    const store = cluster.store({}, (node) => (silent && node === 1 ? lost : undefined));
    const [one, two] = [cluster.mutex("one"), cluster.mutex("two")];
    await store.acquire(one);
    await store.acquire(two);
    await (cluster.members[0] as QuorumMember).release([one]);
    silent = true;
    const [first, second] = await store.renew([one, two]);
    expect(first).toMatchObject({ state: "failed", error: { code: "STORE_UNAVAILABLE" } });
    expect(second).toMatchObject({ state: "held", expiresInMs: 3_000 });
  });

  test("a lease asked for elsewhere is renewed with the same fence", async () => {
    const cluster = new Cluster(3, [0, 4_000, -4_000]);
    const request = cluster.mutex("key");
    const first = await cluster.store().acquire(request);
    await cluster.clock.advance(1);
    expect(await renew(cluster.store(), request)).toMatchObject({ state: "held", ...pick(first) });
    const [status] = (await cluster.store().look({ key: "key", maxClaims: 1 })).keys;
    expect(status?.held[0]).toMatchObject(pick(first));
  });
});

describe("quorum: fences", () => {
  test("grow from one majority to another, whichever clock is ahead", async () => {
    const cluster = new Cluster(5, [60_000, 0, -60_000, 1_000, 0]);
    let down: number[] = [];
    const store = cluster.store({}, (node) => (down.includes(node) ? lost : undefined));
    let last = 0n;
    for (const silent of [[], [0, 1], [2, 3], [0, 3], [0, 4], [1, 2], [0, 1], [3, 4]]) {
      down = silent;
      const request = cluster.mutex("key");
      const answer = await store.acquire(request);
      expect(answer.state === "held" && answer.fence > last).toBe(true);
      last = answer.state === "held" ? answer.fence : last;
      await store.release([request]);
      down = [];
      await store.release([request]);
    }
  });

  test("are the same for calls that see different majorities of one claim at the same time", async () => {
    const cluster = new Cluster(3, [0, 1_000, 2_000]);
    const waiter = cluster.mutex("key", { wait: true });
    const holder = cluster.mutex("key");
    await cluster.store().acquire(holder);
    let calls = 0;
    const store = cluster.store({}, (node, { verb }) => {
      if (verb !== "renew") return undefined;
      const first = Math.floor(calls++ / 3) === 0;
      return node === (first ? 2 : 0) ? lost : undefined;
    });
    await store.acquire(waiter);
    for (const member of cluster.members) await member.release([holder]);
    const answers = await Promise.all([renew(store, waiter), renew(store, waiter)]);
    const elsewhere = cluster.store({}, cut([1], lost));
    const all = [...answers, await renew(store, waiter), await renew(elsewhere, waiter)];
    expect(all.map((answer) => answer?.state)).toEqual(["held", "held", "held", "held"]);
    expect(new Set(all.map((answer) => answer?.state === "held" && answer.fence)).size).toBe(1);
  });

  test("are not handed out before a majority has them", async () => {
    const cluster = new Cluster(3, [0, 5_000, 10_000]);
    const store = cluster.store({}, (_, { verb }) => (verb === "confirm" ? lost : undefined));
    expect(await codeOf(store.acquire(cluster.mutex("key")))).toBe("STORE_UNAVAILABLE");
  });
});

describe("quorum: what it takes", () => {
  test("a semaphore is refused, with the reason", async () => {
    const store = new Cluster(3).store();
    expect(store.counts).toBe(false);
    expect(await codeOf(store.acquire(new Cluster(1).mutex("key", { limit: 2 })))).toBe("UNSUPPORTED");
    const locks = createLocks(store);
    expect(() => locks.semaphore("key", 2)).toThrow(expect.objectContaining({ code: "UNSUPPORTED" }));
    await locks.close();
  });

  test("bad options are refused by name", () => {
    const member = memoryStore();
    expect(() => quorumStore([])).toThrow(/number of members/);
    expect(() => quorumStore([member, member])).toThrow(/different/);
    expect(() => quorumStore([member], { nodeTimeoutMs: 0 })).toThrow(/nodeTimeoutMs/);
    expect(() => quorumStore([member], { backoffMs: 0.5 })).toThrow(/backoffMs/);
    expect(() => quorumStore([member], { clockDrift: 1 })).toThrow(/clockDrift/);
    expect(() => redlockStore({} as never)).toThrow(/^clients must be 1 to 99 .*something else than a list/);
  });

  test("readers share a key over different majorities, and shut a writer out", async () => {
    const cluster = new Cluster(3);
    const readers = [cluster.reader("key"), cluster.reader("key"), cluster.reader("key")];
    for (const [node, reader] of readers.entries()) {
      expect((await cluster.store({}, cut([node], lost)).acquire(reader)).state).toBe("held");
    }
    for (const node of [0, 1, 2]) {
      const answer = await cluster.store({}, cut([node], lost)).acquire(cluster.mutex("key"));
      expect(answer).toEqual({ state: "refused", reason: "contended" });
    }
  });
});

function pick(answer: object): object {
  const { fence, acquiredAtMs } = answer as { fence: bigint; acquiredAtMs: number };
  return { fence, acquiredAtMs };
}

describe("quorum: a listing", () => {
  test("shows a key that reaches the first node only when that has been gone through", async () => {
    const cluster = new Cluster(3);
    const store = cluster.store({}, (node, { verb }) =>
      verb === "acquire" && node === 0 ? { beforeMs: 50 } : undefined,
    );
    const request = cluster.mutex("key");
    expect(await cluster.until(store.acquire(request))).toMatchObject({ state: "held" });
    const shown: string[] = [];
    let cursor: string | undefined;
    do {
      const query = { prefix: "", limit: 10, maxClaims: 1 };
      const page = await store.look(cursor === undefined ? query : { ...query, cursor });
      shown.push(...page.keys.map(({ key }) => key));
      cursor = page.cursor;
      await cluster.clock.advance(100);
    } while (cursor !== undefined);
    expect(await cluster.atAll("key")).toEqual(["h", "h", "h"]);
    expect(shown).toEqual(["key"]);
  });
});
