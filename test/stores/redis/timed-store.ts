/** For tests that own the server's clock: a store over a real server, empty at the beginning of each test. */
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach } from "vitest";
import type { Store } from "../../../src/store/store.ts";
import { redisStore } from "../../../src/stores/redis/index.ts";
import { SCRIPT } from "../../../src/stores/redis/script.ts";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { START_US } from "./differential-histories.ts";
import { TimedClient, timedScript } from "./timed-script.ts";

export interface TimedStore {
  readonly server: RedisServer;
  readonly redis: Redis;
  readonly client: TimedClient;
  readonly store: Store;
}

/** Sets it up and takes it down with the tests of the calling file. What it returns is filled in before the first of them. */
export function timedStore(options: { readonly sweeps?: boolean } = {}): TimedStore {
  const timed = {} as { -readonly [Part in keyof TimedStore]: TimedStore[Part] };

  beforeAll(async () => {
    timed.server = await startRedis();
    timed.redis = new Redis(timed.server.port, "127.0.0.1");
  }, 120_000);

  afterAll(async () => {
    timed.redis?.disconnect();
    await timed.server?.stop();
  });

  beforeEach(async () => {
    await timed.redis.flushall();
    timed.client = new TimedClient(timed.redis, timedScript(SCRIPT, options));
    timed.client.us = START_US;
    timed.store = redisStore(timed.client);
  });

  return timed;
}
