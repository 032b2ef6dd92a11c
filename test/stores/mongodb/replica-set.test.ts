/**
 * Three members, of which some get killed and paused while workers take turns. Throughout: fences only grow, two never
 * hold, and without a majority nothing is granted.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { mongodbStore } from "holdfast/mongodb";
import { MongoClient } from "mongodb6";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunMongod, type MongodbReplicaSet, startMongodbReplicaSet } from "../../engines/mongodb.ts";
import { type Participant, Workers } from "../workers.ts";

const ttlMs = 2_000;
/** An election, a heartbeat, the claim of whoever held last, and what a busy machine and reconnecting take. */
const soonMs = 2_000 + ttlMs / 3 + ttlMs + 20_000;
/** For how long a secondary waits for a paused primary to hear how far it is, and tells nobody else. */
const muteMs = 30_000;

describe.skipIf(!(await canRunMongod()))("mongodb: a replica set of three", { timeout: 120_000 }, () => {
  let set: MongodbReplicaSet;
  beforeAll(async () => {
    set = await startMongodbReplicaSet();
  }, 90_000);
  afterAll(() => set?.stop());

  async function connect(): Promise<Participant> {
    const client = new MongoClient(set.url, { serverSelectionTimeoutMS: 2_000 });
    const store = mongodbStore(client.db("failover"), { durability: "quorum", flightMs: 2_000 });
    return { store, end: () => client.close() };
  }

  const startWorkers = () => Workers.start({ connects: [connect, connect, connect], ttlMs });

  test("a primary that is killed costs nobody its place for long, and comes back unnoticed", async () => {
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

  test("a primary that is paused is deposed, and what it says when it goes on doubles nothing", async () => {
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
});
