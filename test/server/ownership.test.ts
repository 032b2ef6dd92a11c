/** Claims belong to the principal that made them: over both services, and over several servers on one store. */
import { createLocks, type HoldfastWarning, memoryStore, type Store } from "holdfast";
import { hashToken, type LockServer, type Verb } from "holdfast/server";
import { ManualClock } from "holdfast/testing";
import { describe, expect, onTestFinished, test } from "vitest";
import { claimRequest } from "../record/claim-request.ts";
import { startLockServer } from "./lock-server.ts";
import { locksOf, serve, sessionOf } from "./scene.ts";

const all: readonly Verb[] = ["acquire", "read", "admin"];
const entry = (name: string, verbs: readonly Verb[], token = name) => ({
  name,
  sha256: hashToken(token),
  grants: [{ prefix: "", verbs }],
});
const tokens = [
  entry("alice", ["acquire", "read"]),
  entry("alice", ["acquire", "read"], "alice-next"),
  entry("mallory", ["acquire", "read"]),
  entry("root", all),
  entry("a:b", ["acquire", "read"]),
  entry("a", ["acquire", "read"]),
];

/** Two servers over one store. */
async function world(): Promise<{ store: Store; servers: readonly [LockServer, LockServer] }> {
  const store = memoryStore();
  const servers = [await serve({ store, tokens }), await serve({ store, tokens })] as const;
  return { store, servers };
}

const long = { ttlMs: 60_000 };

// (1) Alice holds the key. (2) Mallory reads, learns what ids there are, and asks with hers. (3) Alice renews.
describe.each(["the same server", "another server"])("on %s", (where) => {
  async function three() {
    const { store, servers } = await world();
    const other = servers[where === "the same server" ? 0 : 1];
    return { store, server: servers[0], other };
  }

  test("a session cannot take a lease, nor end it, by its id", async () => {
    const { server, other } = await three();
    const [alice, mallory] = [sessionOf(server, "alice"), sessionOf(other, "mallory")];
    const lease = claimRequest("run-1", { key: "k", ...long });
    const held = await alice.acquire(lease);
    for (const token of ["stolen", lease.token]) {
      const stolen = { ...lease, token };
      expect(await mallory.acquire({ ...stolen, wait: false })).toEqual({
        state: "refused",
        reason: "contended",
      });
      expect(await mallory.renew([stolen])).toEqual([{ state: "gone" }]);
      expect(await mallory.release([stolen])).toEqual([false]);
    }
    expect(await alice.renew([lease])).toMatchObject([
      { state: "held", fence: (held as { fence: bigint }).fence },
    ]);
  });

  test("a session cannot throw a waiter out, but queues behind it", async () => {
    const { store, server, other } = await three();
    const [alice, mallory] = [sessionOf(server, "alice"), sessionOf(other, "mallory")];
    const holder = claimRequest("holder", { key: "k", ...long });
    const waiter = claimRequest("waiter", { key: "k", ...long });
    await alice.acquire(holder);
    await alice.acquire(waiter);
    expect(await mallory.acquire({ ...waiter, token: "other" })).toMatchObject({ state: "waiting" });
    expect((await store.look({ key: "k", maxClaims: 9 })).keys[0]?.waiting.map(({ id }) => id)).toEqual([
      "alice:waiter",
      "mallory:waiter",
    ]);
    await alice.release([holder]);
    expect(await alice.renew([waiter])).toMatchObject([{ state: "held" }]);
  });

  test("a call of Locks cannot take a lease, extend it or end it", async () => {
    const { server, other } = await three();
    const [alice, mallory] = [locksOf(server, "alice"), locksOf(other, "mallory")];
    const request = { key: "k", requestId: "run-1", token: "secret", ...long };
    const { lease } = await alice.acquireDetached(request);
    expect(await mallory.acquireDetached({ ...request, token: "", maxWaitMs: 0 })).toMatchObject({
      acquired: false,
    });
    expect(await mallory.acquireDetached({ ...request, maxWaitMs: 0 })).toMatchObject({ acquired: false });
    const ref = { key: "k", id: "run-1", token: "secret" };
    expect(await mallory.release(ref)).toMatchObject({ released: false });
    await expect(mallory.extend(ref)).rejects.toThrow("does not exist");
    await expect(mallory.forceRelease({ key: "k", id: "alice:run-1" })).rejects.toThrow(
      "does not permit to admin",
    );
    expect((await alice.extend(ref)).fence).toBe(lease?.fence);
    expect((await alice.acquireDetached(request)).lease?.fence).toBe(lease?.fence);
  });

  test("the ids of others are hashes to a reader, and as they are stored to an administrator, who can end claims by them", async () => {
    const { server, other } = await three();
    const [alice, mallory, root] = ["alice", "mallory", "root"].map((token) => sessionOf(other, token)) as [
      Store,
      Store,
      Store,
    ];
    const lease = claimRequest("run-1", { key: "k", ...long });
    await sessionOf(server, "alice").acquire(lease);
    const idSeenBy = async (store: Store) =>
      (await store.look({ key: "k", maxClaims: 1 })).keys[0]?.held[0]?.id;
    expect(await idSeenBy(alice)).toBe("run-1");
    const hash = await idSeenBy(mallory);
    expect(hash).toMatch(/^\?[\w-]{16}$/);
    expect(await idSeenBy(root)).toBe("alice:run-1");
    // The same through the other service, in its three ways to look.
    const reading = locksOf(other, "mallory");
    const [watched] = await firstOf(reading.watch({ what: { case: "prefix", value: "" } }));
    const seen = [
      (await reading.status({ key: "k" })).status,
      (await reading.list({ prefix: "" })).keys[0],
      watched?.status,
    ];
    expect(seen.map((status) => status?.held[0]?.id)).toEqual([hash, hash, hash]);
    await root.acquire(claimRequest("run-1", { key: "of root", ...long }));
    expect(await root.renew([{ key: "k", id: "alice:run-1" }])).toMatchObject([{ state: "held" }]);
    expect(
      await root.release([
        { key: "k", id: "alice:run-1" },
        { key: "of root", id: "run-1" },
        { key: "of root", id: "run-1" },
      ]),
    ).toEqual([true, true, false]);
    expect(await alice.renew([lease])).toEqual([{ state: "gone" }]);
  });
});

test("tokens of one name are one principal, and names that begin alike are not", async () => {
  const { servers } = await world();
  const lease = claimRequest("run-1", { key: "k", ...long });
  await sessionOf(servers[0], "alice").acquire(lease);
  expect(await sessionOf(servers[1], "alice-next").renew([lease])).toMatchObject([{ state: "held" }]);
  const other = claimRequest("c", { key: "other", ...long });
  await sessionOf(servers[0], "a:b").acquire(other);
  expect(await sessionOf(servers[0], "a").renew([{ ...other, id: "b:c" }, other])).toEqual([
    { state: "gone" },
    { state: "gone" },
  ]);
});

test("an id that is too long with the name of the token is refused, with the length that is left", async () => {
  const { servers } = await world();
  const asked = claimRequest("x".repeat(123), { key: "k" });
  await expect(sessionOf(servers[0], "alice").acquire(asked)).rejects.toThrow(
    "id must be at most 122 bytes of UTF-8 with this token, not 123.",
  );
  await expect(startLockServer({ tokens: [entry("n".repeat(64), all)] })).rejects.toThrow("at most 63 bytes");
});

// A half-open session of the same client is still there when the new one comes, or somebody listens for the name that everybody can read.
test("any number of sessions hear of an owner's grants, each of its own principal's", async () => {
  const { servers } = await world();
  const [server] = servers;
  const heard: string[] = [];
  const stores = ["mallory", "alice", "alice-next"].map(
    (token) => [token, sessionOf(server, token)] as const,
  );
  for (const [token, store] of stores) {
    store.onGrant("web-1", (refs) => heard.push(...refs.map(({ id }) => `${token}: ${id}`)));
    await store.look({ key: "k", maxClaims: 0 });
  }
  const alice = stores[1]![1];
  const holder = claimRequest("holder", { key: "k", ...long });
  await alice.acquire(holder);
  await alice.acquire(claimRequest("waiter", { key: "k", owner: "web-1", ...long }));
  await alice.release([holder]);
  await expect.poll(() => heard.toSorted()).toEqual(["alice-next: waiter", "alice: waiter"]);
});

test("replicas of a schedule with tokens of their own run each tick once, and see each other's runs", async () => {
  const { servers } = await world();
  const clock = new ManualClock(Date.UTC(2030, 0, 1, 0, 0, 30));
  const ran: string[] = [];
  const warnings: HoldfastWarning[] = [];
  const schedules = ["alice", "mallory"].map((name, nth) => {
    const locks = createLocks(sessionOf(servers[nth]!, name), {
      clock,
      onWarning: (told) => warnings.push(told),
    });
    onTestFinished(() => locks.close());
    return locks.schedule("job", "* * * * *", () => void ran.push(name));
  });
  await expect
    .poll(
      async () =>
        (await sessionOf(servers[0], "root").look({ key: "job#runs", maxClaims: 9 })).keys[0]?.heldCount,
    )
    .toBe(1);
  // No further than the tick: what goes over the network then takes no time of this clock.
  await clock.advance(30_000);
  for (const schedule of schedules) {
    await expect
      .poll(async () => (await schedule.history()).map(({ outcome }) => outcome))
      .toEqual(["completed"]);
  }
  await schedules[0]!.stop();
  await clock.advance(60_000);
  for (const schedule of schedules) {
    await expect.poll(async () => (await schedule.history()).length).toBe(2);
  }
  await schedules[1]!.stop();
  expect(ran).toHaveLength(2);
  expect(warnings).toEqual([]);
});

async function firstOf<T>(stream: AsyncIterable<T>): Promise<T[]> {
  for await (const event of stream) return [event];
  return [];
}
