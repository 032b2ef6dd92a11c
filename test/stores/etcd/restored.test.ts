/** A cluster that was restored from a backup has revisions that are lower than those that clients know. */
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { Connection } from "../../../src/stores/etcd/connection.ts";
import { EtcdLease } from "../../../src/stores/etcd/etcd-lease.ts";
import { Keys } from "../../../src/stores/etcd/keys.ts";
import { attempt } from "../cas/scene.ts";
import { createScene } from "./scene.ts";

/** A lease of a server whose next revision is told, and whose writes are counted. */
async function leaseOf(server: { revision: number; writes: number }): Promise<EtcdLease> {
  const client = {
    kv: {
      txn: async () => {
        if (++server.writes > 100) throw new Error("There is no end to it.");
        const header = { revision: `${++server.revision}`, raft_term: "2" };
        return { header, succeeded: true, responses: [] };
      },
    },
    leaseClient: { leaseGrant: async () => ({ ID: "1", TTL: "10" }) },
  };
  const connection = new Connection(client as never, new Keys("holdfast"), new ManualClock(), 900);
  const lease = new EtcdLease({
    connection,
    seconds: 10,
    clockDrift: 0,
    onTooShort: () => new Error("too short"),
    onEnd: () => {},
  });
  await lease.start();
  return lease;
}

test("etcd: a doubt from before a restore is not settled by one write after the other, but by another lease", async () => {
  const server = { revision: 3_000, writes: 0 };
  const lease = await leaseOf(server);
  lease.doubt(lease.epoch);
  server.revision = 1_000;
  server.writes = 0;
  await lease.settle();
  expect(server.writes).toBe(1);
  expect(lease.hasEnded).toBe(true);
});

test("etcd: a lease whose key is older than what was compared ends, and one whose key is newer goes on", async () => {
  const lease = await leaseOf({ revision: 3_000, writes: 0 });
  expect(lease.epoch).toBe("3001");
  lease.learnRefusal("3005", "3001");
  expect([lease.epoch, lease.hasEnded]).toEqual(["3005", false]);
  // The answer to a request that was sent before that was known.
  lease.learnRefusal("3003", "3001");
  expect([lease.epoch, lease.hasEnded]).toEqual(["3005", false]);
  lease.learnRefusal("1001", "3005");
  expect(lease.hasEnded).toBe(true);
});

test("etcd: a holder that a restored cluster does not know of learns of that at its heartbeat, and goes on from there", async () => {
  const { store, another, backup, soon, pass, recordOf } = createScene(() => 1, { keepIdleMs: 600_000 });
  const [mine, theirs] = [attempt("k", "mine", { ttlMs: 10_000 }), attempt("k", "theirs", { ttlMs: 10_000 })];
  // The lock has a record, and the process a lease, before the backup.
  await soon(store.acquire(mine));
  await soon(store.release([mine]));
  const restore = backup();
  const busy = another().store;
  for (let nth = 0; nth < 20; nth++)
    await soon(busy.acquire(attempt(`other-${nth}`, "o", { ttlMs: 60_000 })));
  expect(await soon(store.acquire(mine))).toMatchObject({ state: "held" });
  restore();
  const other = another().store;
  expect(await soon(other.acquire(theirs))).toMatchObject({ state: "held" });
  await pass(3_000);
  // The answer that tells that revisions have gone back promises nothing, and the next one is by what is there.
  expect(await soon(store.renew([mine]))).toMatchObject([{ state: "held", expiresInMs: 0 }]);
  expect(await soon(store.renew([mine]))).toMatchObject([{ state: "gone" }]);
  expect(await soon(other.renew([theirs]))).toMatchObject([{ state: "held" }]);
  expect(recordOf("k")?.held.map(({ id }) => id)).toEqual(["theirs"]);
  // What is as it was goes on.
  await soon(other.release([theirs]));
  await pass(1_000);
  expect(await soon(store.acquire(mine))).toMatchObject({ state: "held" });
  await pass(3_000);
  expect(await soon(store.renew([mine]))).toMatchObject([{ state: "held" }]);
});

test.each(["acquire", "release"])(
  "etcd: what goes apart after a joint %s that has shown a restore overwrites nobody",
  async (verb) => {
    const reused: number[] = [];
    for (let writes = 30; writes < 46; writes++) {
      const { store, another, backup, soon, recordOf, revisionOf } = createScene(() => 1, {
        keepIdleMs: 600_000,
      });
      const [mine, beside] = [
        attempt("k", "mine", { ttlMs: 10_000 }),
        attempt("l", "mine", { ttlMs: 10_000 }),
      ];
      await soon(store.acquire(attempt("first", "a", { ttlMs: 10_000 })));
      const before = another().store;
      const restore = backup();
      for (let nth = 0; nth < 40; nth++) await soon(before.acquire(attempt(`before-${nth}`, "b")));
      for (const claim of [mine, beside]) {
        await soon(store.acquire(claim));
        if (verb === "acquire") await soon(store.release([claim]));
      }
      const known = revisionOf("k");
      restore();
      const after = another().store;
      for (let nth = 0; nth < writes; nth++) await soon(after.acquire(attempt(`after-${nth}`, "n")));
      const theirs = attempt("k", "theirs", { ttlMs: 10_000 });
      expect(await soon(after.acquire(theirs))).toMatchObject({ state: "held" });
      if (revisionOf("k") === known) reused.push(writes);
      // Jointly, which the other record refuses.
      if (verb === "release") await soon(store.release([mine, beside]));
      else await soon(Promise.allSettled([store.acquire(mine), store.acquire(beside)]));
      expect(
        recordOf("k")?.held.map(({ id }) => id),
        `after ${writes} writes`,
      ).toEqual(["theirs"]);
    }
    expect(reused).toHaveLength(1);
  },
);

test("etcd: what was known before a restore overwrites nobody, at whatever revision they hold the lock", async () => {
  const reused: number[] = [];
  for (let writes = 30; writes < 42; writes++) {
    const { store, another, backup, soon, recordOf, revisionOf } = createScene(() => 1, {
      keepIdleMs: 600_000,
    });
    const [mine, theirs] = [
      attempt("k", "mine", { ttlMs: 10_000 }),
      attempt("k", "theirs", { ttlMs: 10_000 }),
    ];
    await soon(store.acquire(attempt("first", "a")));
    const before = another().store;
    const restore = backup();
    for (let nth = 0; nth < 40; nth++) await soon(before.acquire(attempt(`before-${nth}`, "b")));
    await soon(store.acquire(mine));
    await soon(store.release([mine]));
    const known = revisionOf("k");
    restore();
    // By these the process notices.
    for (let nth = 0; nth < 3; nth++) await soon(store.acquire(attempt(`noticed-${nth}`, "a")));
    const after = another().store;
    for (let nth = 0; nth < writes; nth++) await soon(after.acquire(attempt(`after-${nth}`, "n")));
    expect(await soon(after.acquire(theirs))).toMatchObject({ state: "held" });
    if (revisionOf("k") === known) reused.push(writes);
    expect(await soon(store.acquire(mine)), `after ${writes} writes`).toMatchObject({ state: "refused" });
    expect(recordOf("k")?.held.map(({ id }) => id)).toEqual(["theirs"]);
  }
  // In one of these, the lock was taken at the very revision that was known.
  expect(reused).toHaveLength(1);
});
