/**
 * Three members, of which some get killed, paused and cut off while workers take turns. Throughout: fences only grow, two
 * never hold, a minority grants nothing and says that it is unavailable, and everybody is served soon after.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { LeaseLostError } from "holdfast";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { until } from "../../engines/engine.ts";
import { canRunEtcd, type EtcdCluster, type EtcdMember, startEtcdCluster } from "../../engines/etcd.ts";
import { Workers } from "../workers.ts";
import { locksAt, participant } from "./participants.ts";

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

  const urls = (members: readonly EtcdMember[] = cluster.members) => members.map(({ url }) => url);

  function startWorkers(): Promise<Workers> {
    const connects = [0, 1, 2].map(() => async () => participant(urls(), { flightMs: 1_000 }));
    return Workers.start({ connects, ttlMs });
  }

  test("a leader that is killed costs nobody its place for long, and comes back unnoticed", async () => {
    const workers = await startWorkers();
    const leader = await cluster.leader();
    await leader.kill();
    await workers.servesAll(soonMs);
    await leader.restart();
    await workers.servesAll(soonMs);
    await workers.stop();
    expect(workers.overlaps).toBe(0);
  });

  test("a leader that is paused for longer than the ttl, and others that are all paused, double nothing", async () => {
    const workers = await startWorkers();
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

  test("whoever reaches only a minority is granted nothing, and knows that it lost before another is granted", async () => {
    const leader = await cluster.leader();
    const others = cluster.members.filter((member) => member !== leader);
    const minority = locksAt(leader.url, { flightMs: 1_000 });
    const majority = locksAt(urls(others), { flightMs: 1_000 });
    // The members may still be busy with what was done to them before.
    for (const locks of [minority, majority]) {
      await until("all members serve", () => locks.mutex("ready").run(() => true));
    }
    const events: string[] = [];
    const lease = await minority.mutex("split", { ttlMs }).acquire();
    lease.signal.addEventListener("abort", () => events.push("lost"));
    // Whoever waits puts up with an outage for its ttl, and an election may take longer than that of the others.
    const next = majority.mutex("split", { ttlMs: 5 * ttlMs }).acquire({ waitMs: 30_000 });
    next.then(() => events.push(lease.held ? "both hold" : "granted")).catch(() => events.push("failed"));
    await until("the other waits", async () => (await majority.inspect("split")).waitingCount === 1);

    cluster.cutOff(leader);
    const refused = { code: "STORE_UNAVAILABLE" };
    await expect(minority.mutex("elsewhere", { ttlMs }).tryAcquire()).rejects.toMatchObject(refused);
    expect((await next).fence).toBeGreaterThan(lease.fence);
    expect(events).toEqual(["lost", "granted"]);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    await expect(minority.mutex("split", { ttlMs }).tryAcquire()).rejects.toMatchObject(refused);
    expect(await majority.mutex("elsewhere", { ttlMs }).tryRun(() => "ran")).toMatchObject({ ran: true });

    // A member that comes back may cause another election, so whether the lease outlives that is not the point here.
    cluster.heal();
    const { fence } = await next;
    await (await next).release().catch(() => {});
    let last = 0n;
    await until("the minority is served again", () =>
      minority.mutex("split").run((again) => {
        last = again.fence;
        return true;
      }),
    );
    expect(last).toBeGreaterThan(fence);
  });
});
