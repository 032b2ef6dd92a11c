import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SCRIPT } from "../../../src/stores/redis/script.ts";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { findDifference } from "./difference-search.ts";
import { Differential } from "./differential.ts";
import { scriptMutants } from "./script-mutants.ts";

let server: RedisServer;
let redis: Redis;

beforeAll(async () => {
  server = await startRedis();
  redis = new Redis(server.port, "127.0.0.1");
}, 120_000);

afterAll(async () => {
  redis.disconnect();
  await server.stop();
});

test.each(scriptMutants.map(({ name, find, replace }) => [name, find, replace] as const))(
  "redis: the differential test finds that %s",
  async (_, find, replace) => {
    expect(SCRIPT.split(find)).toHaveLength(2);
    const mutant = SCRIPT.replace(find, () => replace);
    // A script that does not compile would be found by any test.
    await redis.script("LOAD", mutant);
    const differential = await Differential.open(server.port, mutant);
    const found = await findDifference(differential, { seed: 1, operations: 20_000, shrink: false });
    differential.close();
    expect(found).toBeDefined();
  },
);
