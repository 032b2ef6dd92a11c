/** A server of a cluster that neither answers nor closes its connections. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { redisStore } from "holdfast/redis";
import { describe, expect, onTestFinished, test } from "vitest";
import { canRunRedis } from "../../engines/redis.ts";
import { clusterClients } from "../../engines/redis-clients.ts";
import { startRedisCluster } from "../../engines/redis-topologies.ts";

const TTL_MS = 3_000;
const LEASES = 30;

describe.skipIf(!canRunRedis())("redis: a silent server of a cluster", { timeout: 60_000 }, () => {
  test("costs the leases on it, and no others, with every client", async () => {
    const cluster = await startRedisCluster();
    onTestFinished(() => cluster.stop());
    const connected = await Promise.all(Object.values(clusterClients).map((connect) => connect(cluster)));
    onTestFinished(() => {
      for (const { end } of connected) end();
    });
    const leases = await Promise.all(
      connected.map(({ client }, nth) => {
        const locks = createLocks(redisStore(client), { closeStore: false, onWarning: () => {} });
        return Promise.all(keysOf(nth).map((key) => locks.mutex(key, { ttlMs: TTL_MS }).acquire()));
      }),
    );
    const [silent] = cluster.masters;
    silent!.pause();
    onTestFinished(() => silent!.resume());
    await sleep(1.5 * TTL_MS);
    const held = leases.map((own) => own.filter((lease) => lease.held).length);
    // Two thirds of them, more or less.
    for (const count of held) {
      expect.soft(count).toBeGreaterThan(LEASES / 3);
      expect.soft(count).toBeLessThan(LEASES);
    }
  });
});

function keysOf(client: number): readonly string[] {
  return Array.from({ length: LEASES }, (_, nth) => `client-${client}:key-${nth}`);
}
