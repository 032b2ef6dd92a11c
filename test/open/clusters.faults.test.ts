/** URLs with several hosts. */
import { expect, onTestFinished, test } from "vitest";
import { canRunEtcd, startEtcdCluster } from "../engines/etcd.ts";
import { canRunRedis } from "../engines/redis.ts";
import { startRedisCluster } from "../engines/redis-topologies.ts";
import { expectToLock } from "./expect-to-lock.ts";

test.skipIf(!canRunRedis())("redis: with several hosts, a cluster", { timeout: 60_000 }, async () => {
  const cluster = await startRedisCluster();
  onTestFinished(() => cluster.stop());
  await expectToLock(`redis://${cluster.masters.map(({ port }) => `127.0.0.1:${port}`).join(",")}`, "redis");
});

test.skipIf(!canRunEtcd())(
  "etcd: with several hosts, a cluster, also while one member is away",
  { timeout: 60_000 },
  async () => {
    const cluster = await startEtcdCluster();
    onTestFinished(() => cluster.stop());
    const leader = await cluster.leader();
    const followers = cluster.members.filter((member) => member !== leader);
    const url = `etcd://${[...followers, leader].map(({ port }) => `127.0.0.1:${port}`).join(",")}`;
    await expectToLock(url, "etcd");
    await followers[0]!.kill();
    await expectToLock(url, "etcd");
    expect(followers).toHaveLength(2);
  },
);
