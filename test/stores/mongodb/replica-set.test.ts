/**
 * Three members, of which some get killed and paused while workers take turns. Throughout: fences only grow, two never
 * hold, and without a majority nothing is granted.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Locks } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import {
  canRunMongod,
  type MongodbReplicaSet,
  type MongodbServer,
  startMongodbReplicaSet,
} from "../../engines/mongodb.ts";
import { failure } from "../failure.ts";
import { type Participant, Workers } from "../workers.ts";

const ttlMs = 2_000;
/** An election, a heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = 2_000 + ttlMs / 3 + ttlMs + 20_000;
/** For how long a secondary waits for a paused primary to hear how far it is, and tells nobody else. */
const muteMs = 30_000;

const runs = await canRunMongod("mongodb: the tests of a replica set");

describe.skipIf(!runs)("mongodb: a replica set of three", { timeout: 120_000 }, () => {
  let set: MongodbReplicaSet;
  beforeAll(async () => {
    set = await startMongodbReplicaSet();
  }, 90_000);
  afterAll(() => set?.stop());

  async function connect(): Promise<Participant> {
    const client = new MongoClient(set.url, { serverSelectionTimeoutMS: 2_000 });
    const store = mongodbStore(client.db("failover"), { durability: "quorum", requestTimeoutMs: 2_000 });
    return { store, end: () => client.close() };
  }

  const startWorkers = () => Workers.start({ connects: [connect, connect, connect], ttlMs });

  test("a primary that is killed delays waiters only briefly, and comes back unnoticed", async () => {
    const workers = await startWorkers();
    const primary = await set.primary();
    await primary.kill();
    await workers.servesAll(soonMs);
    expect(await set.primary()).not.toBe(primary);
    await primary.restart();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a primary that is paused is deposed, and makes no second holder when it continues", async () => {
    const workers = await startWorkers();
    const primary = await set.primary();
    primary.pause();
    onTestFinished(() => primary.resume());
    await sleep(ttlMs + 2_000);
    await workers.servesAll(muteMs + soonMs);
    primary.resume();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("without a majority nothing is granted, which is an outage; a lease that was confirmed is still there", async () => {
    const { store, end } = await connect();
    const locks = createLocks(store, { onWarning: () => {}, requestTimeoutMs: 3_000 });
    onTestFinished(async () => {
      await locks.close();
      await end();
    });
    const lease = await locks.mutex("kept", { ttlMs: 120_000, renew: false }).acquire();
    const primary = await set.primary();
    const others = set.members.filter((member) => member !== primary);
    await Promise.all(others.map((member) => member.kill()));
    await expect(locks.mutex("other", { ttlMs }).tryAcquire()).rejects.toMatchObject({
      code: "STORE_UNAVAILABLE",
    });
    await Promise.all(others.map((member) => member.restart()));
    await until("the majority serves again", async () => {
      const again = await locks.mutex("third", { ttlMs }).tryAcquire();
      return (await again?.release()) === true;
    });
    expect(await locks.inspect("kept")).toMatchObject({ heldCount: 1, fence: lease.fence });
    expect(await locks.mutex("kept").tryAcquire()).toBeNull();
    expect(await lease.release()).toBe(true);
  });

  describe("a client that is bound to one member", () => {
    /** Locks by way of the whole set, and what is in their collection. */
    function openSet() {
      const client = new MongoClient(set.url);
      const locks = createLocks(mongodbStore(client.db("bound")), { onWarning: () => {} });
      onTestFinished(async () => {
        await locks.close();
        await client.close();
      });
      const records = client.db("bound").collection("holdfast");
      return { locks, contents: () => records.find().sort({ _id: 1 }).toArray() };
    }

    function openMember({ url }: MongodbServer, createIndex = true) {
      // By this preference a secondary would answer what the store asks, had the store left it in place.
      const client = new MongoClient(url, { readPreference: "secondaryPreferred" });
      const store = mongodbStore(client.db("bound"), { createIndex });
      const locks = createLocks(store, { onWarning: () => {}, requestTimeoutMs: 3_000 });
      onTestFinished(async () => {
        await locks.close();
        await client.close();
      });
      return { client, locks };
    }

    async function refusesAll(locks: Locks): Promise<void> {
      const asked = {
        tryOfHeld: locks.mutex("held", { ttlMs }).tryAcquire(),
        tryOfFree: locks.mutex("free", { ttlMs }).tryAcquire(),
        wait: locks.mutex("held", { ttlMs }).acquire(),
        lookAtHeld: locks.inspect("held"),
        lookAtFree: locks.inspect("free"),
        forcedRelease: locks.forceRelease("free", "nobody"),
        list: locks.list()[Symbol.asyncIterator]().next(),
      };
      const answers = await Promise.allSettled(Object.values(asked));
      for (const [index, name] of Object.keys(asked).entries()) {
        expect(answers[index], name).toMatchObject({ reason: { code: "STORE_UNAVAILABLE" } });
        const { reason } = answers[index] as PromiseRejectedResult;
        // A claim is tried for some time, and ends with the last error as its cause.
        expect(`${reason} ${reason.cause}`, name).toContain("Remove directConnection from the URL");
      }
    }

    test.each([
      ["", true],
      [", also where no index is made", false],
    ])(
      "is told so where it is a secondary, and nothing is read or written there%s",
      async (_, createIndex) => {
        const { locks, contents } = openSet();
        const lease = await locks.mutex("held", { ttlMs: 120_000, renew: false }).acquire();
        const before = await contents();
        const primary = await set.primary();
        for (const member of set.members.filter((each) => each !== primary)) {
          await refusesAll(openMember(member, createIndex).locks);
        }
        expect(await contents()).toEqual(before);
        expect(await lease.release()).toBe(true);
      },
    );

    /**
     * The interleaving: the member was the primary when the store came to know it. A client that is bound to it goes on asking
     * it after it has stepped down, and the driver lets a bound client read from whatever member it has.
     */
    test("gets an outage when that steps down, and reads no old records there", async () => {
      const { locks, contents } = openSet();
      const primary = await set.primary();
      const bound = openMember(primary);
      const lease = await locks.mutex("held", { ttlMs: 120_000, renew: false }).acquire();
      expect(await bound.locks.inspect("held")).toMatchObject({ fence: lease.fence });
      expect(await bound.locks.mutex("held").tryAcquire()).toBeNull();
      const own = await bound.locks.mutex("own", { ttlMs: 120_000, renew: false }).acquire();
      await bound.client.db("admin").command({ replSetStepDown: 10, force: true });
      await until("another is primary", async () => (await set.primary()) !== primary);
      const before = await contents();
      await refusesAll(bound.locks);
      expect(await failure(own.release())).toMatchObject({ code: "STORE_UNAVAILABLE" });
      expect(await contents()).toEqual(before);
      expect(await lease.release()).toBe(true);
    });
  });
});
