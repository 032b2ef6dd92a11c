/**
 * A cluster moves a slot key by key. In between, the hash of a partition may be at the new server, and some sets of a lock still at the old
 * one. A script at the new server finds nothing where those should be, and must not take that for an answer: a reader would be let in
 * beside a writer whose limit is not there yet.
 */
import type { HoldfastError } from "holdfast";
import { redisStore } from "holdfast/redis";
import { Cluster, Redis } from "ioredis";
import { expect, onTestFinished, test } from "vitest";
import { canRunRedis } from "../../engines/redis.ts";
import { startRedisCluster } from "../../engines/redis-topologies.ts";
import { claimRequest } from "../../record/claim-request.ts";

const keyOf = (kind: string) => `holdfast:{0}:${kind}`;

test.skipIf(!canRunRedis())(
  "redis: nobody is let in beside a holder while a cluster moves the partition",
  { timeout: 60_000 },
  async () => {
    const cluster = await startRedisCluster();
    const servers = cluster.masters.map(({ port }) => ({ port, redis: new Redis(port, "127.0.0.1") }));
    const client = new Cluster(servers.map(({ port }) => ({ host: "127.0.0.1", port })));
    const store = redisStore(client, { partitions: 1 });
    onTestFinished(async () => {
      await store.close();
      client.disconnect();
      for (const { redis } of servers) redis.disconnect();
      await cluster.stop();
    });
    const writer = claimRequest("writer", { key: "k", limit: 1, ttlMs: 60_000 });
    const waiter = claimRequest("waiter", { key: "k", limit: 1, ttlMs: 60_000 });
    expect((await store.acquire(writer)).state).toBe("held");
    expect((await store.acquire(waiter)).state).toBe("waiting");
    await store.release([waiter]);

    const owned = await Promise.all(servers.map(({ redis }) => redis.exists(keyOf("locks")).catch(() => 0)));
    const from = servers[owned.indexOf(1)]!;
    const to = servers[(owned.indexOf(1) + 1) % servers.length]!;
    const slot = String(await from.redis.call("CLUSTER", "KEYSLOT", keyOf("locks")));
    const [fromId, toId] = (await Promise.all(
      [from, to].map(({ redis }) => redis.call("CLUSTER", "MYID")),
    )) as [string, string];
    await to.redis.call("CLUSTER", "SETSLOT", slot, "IMPORTING", fromId);
    await from.redis.call("CLUSTER", "SETSLOT", slot, "MIGRATING", toId);
    const kinds = ["partitions", "locks", "claims:k", "held:k", "limits:k"];
    for (const [moved, kind] of kinds.entries()) {
      await from.redis.call("MIGRATE", "127.0.0.1", String(to.port), keyOf(kind), "0", "5000");
      const reader = claimRequest(`reader ${moved}`, { key: "k", limit: 100, wait: false, ttlMs: 60_000 });
      const state = await store.acquire(reader).then(
        (answer) => answer.state,
        (error: HoldfastError) => error.code,
      );
      expect(["refused", "STORE_UNAVAILABLE"], `after ${kind}`).toContain(state);
    }
    for (const { redis } of servers) await redis.call("CLUSTER", "SETSLOT", slot, "NODE", toId);
    expect(await store.renew([writer])).toMatchObject([{ state: "held" }]);
    expect(await store.release([writer])).toEqual([true]);
  },
);
