import type { NodeRedisClient } from "holdfast/redis";
import { storeContract } from "holdfast/testing";
import { afterAll, beforeAll, describe, it } from "vitest";
import { canRunRedis } from "../engines/redis.ts";
import { type Connected, sentinelClients } from "../engines/redis-clients.ts";
import { type RedisSentinels, startRedisSentinels } from "../engines/redis-topologies.ts";
import { redisHarness } from "./redis-harness.ts";

describe.skipIf(!canRunRedis())("redis: a master with sentinels", () => {
  let servers: RedisSentinels;

  beforeAll(async () => {
    servers = await startRedisSentinels();
  }, 120_000);

  afterAll(() => servers?.stop());

  for (const [name, connect] of Object.entries(sentinelClients)) {
    // Six servers share the machine with other tests: the shortest ttl must outlast what they may be kept waiting.
    const { harness, connectAll, end } = redisHarness(
      `through ${name}`,
      () => connect(servers).then(keptListening),
      40,
    );
    beforeAll(connectAll);
    afterAll(end);
    storeContract(harness, { describe: describe.concurrent, it });
  }
});

/**
 * node-redis closes connections when a sentinel client connects, and when the last store over it no longer listens. Any that it
 * closes counts as lost for a release under way, which is then in doubt: a lock asks again, these tests look at each answer.
 */
async function keptListening(connected: Connected): Promise<Connected> {
  const client = connected.client as NodeRedisClient;
  if (client.getSentinelNode !== undefined) await client.subscribe("kept-open", () => {});
  return connected;
}
