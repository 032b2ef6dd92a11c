/** When records are swept, and when not. */
import { ManualClock } from "holdfast/testing";
import { expect, test } from "vitest";
import { Sweeper } from "../../../src/stores/cas/sweeper.ts";

/** A sweeper of which each sweep is noted, takes 100 ms, and removes what the next answer says. */
function open({
  answers = [] as (number | Error)[],
  keepIdleMs = 10_000,
  random = 0.9,
  chance = () => random,
} = {}) {
  const clock = new ManualClock();
  const sweptMs: number[] = [];
  let [underWay, mostUnderWay] = [0, 0];
  const sweepSome = async (limit: number) => {
    sweptMs.push(clock.monotonicMs());
    mostUnderWay = Math.max(mostUnderWay, ++underWay);
    await new Promise<void>((resolve) => {
      clock.setTimer(100, resolve);
    });
    underWay--;
    const answer = answers.shift() ?? 0;
    if (answer instanceof Error) throw answer;
    return Math.min(answer, limit);
  };
  const startMs = clock.monotonicMs();
  const sweeper = new Sweeper(sweepSome, clock, chance, keepIdleMs);
  return {
    clock,
    sweeper,
    swept: () => sweptMs.map((ms) => ms - startMs),
    mostUnderWay: () => mostUnderWay,
  };
}

test("cas: sweeps come once before, by chance, and then until the last record is old enough", async () => {
  const { clock, sweeper, swept } = open({ random: 0.5 });
  sweeper.expect(25_000);
  await clock.advance(200_000);
  // Every 11 s and a quarter of that, until 26 s have passed.
  expect(swept()).toEqual([5_500, 13_750, 27_600]);
});

test("cas: processes that begin together do not sweep together", async () => {
  // The first chance decides over the regular sweep, the second over the early one.
  const [one, other] = [0.25, 0.75].map((first) => {
    const chances = [first, 0];
    return open({ chance: () => chances.shift() ?? first });
  });
  for (const { clock, sweeper } of [one!, other!]) {
    sweeper.expect(0);
    await clock.advance(30_000);
  }
  expect([one!.swept(), other!.swept()]).toEqual([
    [0, 12_375],
    [0, 15_125],
  ]);
});

test("cas: between sweeps of a full batch there is a rest of as long as that took", async () => {
  const { clock, sweeper, swept } = open({ answers: [1_000, 1_000, 7], random: 0 });
  sweeper.expect(0);
  await clock.advance(1_000);
  expect(swept()).toEqual([0, 200, 400]);
});

test("cas: a sweep goes on where some were used again, or others have removed most of them", async () => {
  const { clock, sweeper, swept } = open({ answers: [1_000, 999, 500, 100, 99], random: 0 });
  sweeper.expect(0);
  await clock.advance(2_000);
  expect(swept()).toEqual([0, 200, 400, 600, 800]);
});

test("cas: a sweep that failed is repeated, though nothing was written since", async () => {
  const { clock, sweeper, swept } = open({ answers: [0, new Error("away")], random: 0.5 });
  sweeper.expect(0);
  await clock.advance(60_000);
  expect(swept()).toEqual([5_500, 13_750, 27_600]);
});

test("cas: a store that was closed sweeps no more, also in the middle of many", async () => {
  const { clock, sweeper, swept } = open({ answers: Array.from({ length: 100 }, () => 1_000), random: 0 });
  sweeper.expect(0);
  await clock.advance(250);
  sweeper.close();
  sweeper.expect(0);
  await clock.advance(60_000);
  expect(swept()).toEqual([0, 200]);
});

test("cas: a sweep that takes long is not joined by the next, which follows", async () => {
  const answers = Array.from({ length: 20 }, () => 1_000);
  const { clock, sweeper, swept, mostUnderWay } = open({ answers, keepIdleMs: 0, random: 0.99 });
  sweeper.expect(0);
  await clock.advance(10_000);
  expect(mostUnderWay()).toBe(1);
  // The first one, of 21 batches, came at 990 ms, and what was written was too young for it.
  expect(swept()).toHaveLength(22);
});
