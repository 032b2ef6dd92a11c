import { afterAll, beforeAll, expect, test } from "vitest";
import { type RedisServer, startRedis } from "../../engines/redis.ts";
import { findDifference } from "./difference-search.ts";
import { Differential } from "./differential.ts";
import { PARTS } from "./differential-histories.ts";

/** The same in every run, which is known to meet all cases, and some that nobody has played before. */
const searches = [
  { seed: 1, operations: 20_000 },
  { seed: Math.floor(Math.random() * 1_000_000_000), operations: 10_000 },
];

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
  "lose a lone lock's field",
  ...PARTS.map((part) => `lose a shared lock's ${part}`),
];

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
}, 120_000);

afterAll(() => server.stop());

test("redis: the script answers every history as the record machine does", { timeout: 180_000 }, async () => {
  const differential = await Differential.open(server.port);
  for (const search of searches) {
    const found = await findDifference(differential, search);
    if (found === undefined) continue;
    const again = `npm run differential -- --seed ${found.seed} --path ${found.path}`;
    throw new Error(`(${again} repeats this)\n${found.story}`);
  }
  differential.close();
  expect(differential.operations).toBeGreaterThanOrEqual(30_000);
  for (const name of cases) expect.soft(differential.seen.get(name) ?? 0, name).toBeGreaterThanOrEqual(5);
});
