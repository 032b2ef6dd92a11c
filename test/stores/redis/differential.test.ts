import { afterAll, beforeAll, expect, test } from "vitest";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { Differential, findDifference } from "./differential.ts";

const OPERATIONS = 20_000;

/** What must have happened often for the comparison to mean anything. */
const cases = [
  "acquire held",
  "acquire waiting",
  "acquire contended",
  "acquire queue-full",
  "acquire id-reused",
  "renew held",
  "renew waiting",
  "renew gone",
  "renew taken over",
  "release true",
  "release false",
  "look",
  "a key twice in a batch",
  "a record with few",
  "a record with many",
  "a record with more than a hundred",
  "grant in the reply",
  "grant published",
  "forget data",
  "forget scripts",
];

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, 120_000);

afterAll(() => server.stop());

test("redis: the script answers every history as the record machine does", { timeout: 180_000 }, async () => {
  const differential = await Differential.open(server.port);
  const seed = Math.floor(Math.random() * 1_000_000_000);
  const found = await findDifference(differential, { seed, operations: OPERATIONS });
  differential.close();
  if (found !== undefined) {
    throw new Error(
      `(npm run differential -- --seed ${found.seed} --path ${found.path} repeats this)\n${found.story}`,
    );
  }
  expect(differential.operations).toBeGreaterThanOrEqual(OPERATIONS);
  for (const name of cases) expect.soft(differential.seen.get(name) ?? 0, name).toBeGreaterThan(10);
});
