import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, test } from "vitest";
import { LUA } from "../../../src/stores/redis/script.ts";
import { withConstants } from "../../../src/stores/redis/script-constants.ts";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { findDifference } from "./difference-search.ts";
import { Differential } from "./differential.ts";
import { scriptMutants } from "./script-mutants.ts";

/** As many as `npm test` plays, always the same. */
const OPERATIONS = 20_000;
const SEED = 1;

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

/** A few show that it finds something at all. All of them, also those that take thousands of operations to show, are for `npm run mutants`. */
const isEach = process.env["SCRIPT_MUTANTS"] === "all";
const EVERY = 5;

for (const [index, { name, find, replace, isRare }] of scriptMutants.entries()) {
  test(`redis: there is one place to plant that ${name}`, () => {
    expect(LUA.split(find)).toHaveLength(2);
    expect(replace).not.toBe(find);
  });

  if ((isRare || index % EVERY !== 0) && !isEach) continue;
  test(`redis: the differential test finds that ${name}`, async () => {
    const script = withConstants(LUA.replace(find, () => replace));
    // A script that does not even compile would be found by anything.
    await redis.script("LOAD", script);
    const differential = await Differential.open(server.port, script);
    const found = await findDifference(differential, { seed: SEED, operations: OPERATIONS, shrink: false });
    differential.close();
    expect(found).toBeDefined();
  });
}
