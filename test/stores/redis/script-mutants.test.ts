import { afterAll, beforeAll, expect, test } from "vitest";
import { SCRIPT } from "../../../src/stores/redis/script.ts";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { findDifference } from "./difference-search.ts";
import { Differential } from "./differential.ts";
import { scriptMutants } from "./script-mutants.ts";

/** As many as `npm test` plays, always the same. */
const OPERATIONS = 20_000;
const SEED = 1;

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, 120_000);

afterAll(() => server.stop());

test.each(scriptMutants)("redis: the differential test finds that $name", async ({ find, replace }) => {
  expect(SCRIPT.split(find), "places to plant the bug").toHaveLength(2);
  const differential = await Differential.open(
    server.port,
    SCRIPT.replace(find, () => replace),
  );
  const found = await findDifference(differential, { seed: SEED, operations: OPERATIONS, shrink: false });
  differential.close();
  expect(found).toBeDefined();
});
