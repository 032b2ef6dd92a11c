/**
 * Three members, of which some get killed, paused and cut off while workers take turns. Throughout: fences only grow, two
 * never hold, a minority grants nothing and says that it is unavailable, and everybody is served soon after.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Etcd3 } from "etcd3";
import { type HoldfastError, LeaseLostError, type Store } from "holdfast";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdCluster, type EtcdMember, startEtcdCluster } from "../../engines/etcd.ts";
import { claimRequest } from "../../record/claim-request.ts";
import { Workers } from "../workers.ts";
import { connect, connectBriefly, locksAt, participant, participantWith } from "./participants.ts";

const ttlMs = 2_000;
/** Another leader gives every lease its full time again, and a moment more. */
const leaseMs = 5_000;
/** The client keeps away from each member that fails three times for 5 s, and may pick the one that is paused when that is over. */
const restsMs = 30_000;
const soonMs = ttlMs / 3 + leaseMs + restsMs;

describe.skipIf(!canRunEtcd())("etcd: a cluster of three", { timeout: 180_000 }, () => {
  let cluster: EtcdCluster;
  beforeAll(async () => {
    cluster = await startEtcdCluster();
  }, 60_000);
  afterAll(() => cluster.stop());

  const urls = () => cluster.members.map(({ url }) => url);

  /** The store of a process that reaches this member alone, and asks once what it is asked for. */
  function storeAt({ url }: EtcdMember): Store {
    const { store, end } = participant(url, { requestTimeoutMs: 500 });
    onTestFinished(async () => {
      await store.close();
      await end();
    });
    return store;
  }

  function startWorkers(newClient: (hosts: string[]) => Etcd3, requestTimeoutMs = 1_000): Promise<Workers> {
    const connects = [0, 1, 2].map(
      () => async () => participantWith(newClient(urls()), { requestTimeoutMs }),
    );
    return Workers.start({ connects, ttlMs });
  }

  test("a leader that is killed costs nobody its place for long, and comes back unnoticed", async () => {
    // With clients as they come. Elsewhere in this file they would make up half of the time by lifetimes away from members.
    const workers = await startWorkers(connect);
    const leader = await cluster.leader();
    await leader.kill();
    await workers.servesAll(soonMs);
    await leader.restart();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a leader that is paused for longer than the ttl, and others that are all paused, double nothing", async () => {
    const workers = await startWorkers(connectBriefly);
    const leader = await cluster.leader();
    leader.pause();
    onTestFinished(() => {
      for (const member of cluster.members) member.resume();
    });
    await sleep(ttlMs + 1_000);
    await workers.servesAll(soonMs);
    leader.resume();
    await workers.servesAll(soonMs);
    for (const member of cluster.members) member.pause();
    await sleep(ttlMs + 1_000);
    for (const member of cluster.members) member.resume();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test.for(["leader", "follower"])(
    "a %s that is cut off grants nothing, the others go on, and whoever held something there knows that before another is granted it",
    async (role) => {
      // Their clients reach all members, also the one that is cut off, which then leaves a third of all calls unanswered.
      const workers = await startWorkers(connectBriefly, 400);
      const leader = await cluster.leader();
      const member = role === "leader" ? leader : cluster.members.find((each) => each !== leader)!;
      const other = cluster.members.find((each) => each !== member)!;
      const minority = locksAt(member.url, { requestTimeoutMs: 1_000 });
      const majority = locksAt(other.url, { requestTimeoutMs: 1_000 });
      // The members may still be busy with what was done to them before.
      for (const locks of [minority, majority]) {
        await until("all members serve", () => locks.mutex("ready").run(() => true));
      }
      const events: string[] = [];
      const key = `split from a ${role}`;
      const lease = await minority.mutex(key, { ttlMs }).acquire();
      lease.signal.addEventListener("abort", () => events.push("lost"));
      // Whoever waits puts up with an outage for its ttl, and an election may take longer than that of the others.
      const next = majority.mutex(key, { ttlMs: 5 * ttlMs }).acquire({ waitMs: 30_000 });
      next.then(() => events.push(lease.held ? "both hold" : "granted")).catch(() => events.push("failed"));
      await until("the other waits", async () => (await majority.inspect(key)).waitingCount === 1);
      const known = storeAt(member);
      const first = claimRequest("known", { key: "known", ttlMs });
      await until("it has a lease", async () => (await known.acquire(first)).state === "held");

      cluster.cutOff(member);
      onTestFinished(() => cluster.heal());
      const stopAsking = keepAsking([known, storeAt(member)], key);
      await workers.servesAll(soonMs);
      expect((await next).fence).toBeGreaterThan(lease.fence);
      expect(events).toEqual(["lost", "granted"]);
      expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
      expect(await majority.mutex("elsewhere", { ttlMs }).tryRun(() => "ran")).toMatchObject({ ran: true });
      const answers = await stopAsking();
      expect(answers.length).toBeGreaterThan(10);
      expect([...new Set(answers)]).toEqual(["STORE_UNAVAILABLE"]);

      // A member that comes back may cause another election, so whether the lease outlives that is not the point here.
      cluster.heal();
      await Promise.all([workers.servesAll(soonMs), (await next).release().catch(() => {})]);
      let last = 0n;
      await until("the minority is served again", () =>
        minority.mutex(key).run((again) => {
          last = again.fence;
          return true;
        }),
      );
      expect(last).toBeGreaterThan((await next).fence);
      await workers.stop();
      expect(workers.overlaps).toBe(0);
    },
  );
});

/**
 * Asks stores again and again for a lock that is free, for one that is taken, and who has that one. Returns what ends it, and tells
 * each answer by its state, or by the code of its error.
 */
function keepAsking(stores: readonly Store[], taken: string): () => Promise<readonly string[]> {
  const answers: string[] = [];
  let isOver = false;
  // Also where the test has failed: a store that is closed answers at once.
  onTestFinished(() => {
    isOver = true;
  });
  const note = (asked: Promise<object>) =>
    asked.then(
      (answer) => answers.push("state" in answer ? String(answer.state) : "shown"),
      (error: HoldfastError) => answers.push(error.code ?? String(error)),
    );
  const loops = stores.map(async (store, index) => {
    for (let round = 0; !isOver; round++) {
      const request = claimRequest(`asked ${index} ${round}`, { ttlMs, wait: false });
      await Promise.all([
        note(store.acquire({ ...request, key: request.id })),
        note(store.acquire({ ...request, key: taken })),
        note(store.look({ key: taken, maxClaims: 0 })),
      ]);
    }
  });
  return async () => {
    isOver = true;
    await Promise.all(loops);
    return answers;
  };
}
