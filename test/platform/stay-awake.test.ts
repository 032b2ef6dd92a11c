import { beforeEach, expect, test } from "vitest";
import { StayAwake, type StayAwakeOptions } from "../../src/platform/stay-awake.ts";

/** As far as the event loop has got. */
let nowMs = 0;
let due: (() => void)[] = [];
let awake: StayAwake;

beforeEach(() => {
  nowMs = 0;
  due = [];
  awake = open(2);
});

function open(processors: number): StayAwake {
  return new StayAwake(options(processors));
}

function options(processors: number): StayAwakeOptions {
  return { nowMs: () => nowMs, nextTurn: (callback) => due.push(callback), processors };
}

/** Turns until nothing is left to do, or for so many turns of 10 µs, and tells how many there were. */
function turns(most = 1_000): number {
  let count = 0;
  for (; due.length > 0 && count < most; count++) {
    const callbacks = due;
    due = [];
    nowMs += 0.01;
    for (const callback of callbacks) callback();
  }
  return count;
}

/** A call whose answer does not come in time. Tells whether the loop was kept turning. */
function callInVain(): boolean {
  const wait = awake.sent();
  const turned = turns() > 0;
  nowMs += 1_000;
  awake.answered(wait);
  return turned;
}

test("the loop turns until the answer has come", () => {
  const wait = awake.sent();
  expect(turns(5)).toBe(5);
  awake.answered(wait);
  expect(turns()).toBe(1);
});

test("it turns for all calls that are under way, with one callback for all", () => {
  const waits = [awake.sent(), awake.sent()] as const;
  expect(due).toHaveLength(1);
  turns(5);
  awake.answered(waits[0]);
  expect(turns(5)).toBe(5);
  awake.answered(waits[1]);
  expect(turns()).toBe(1);
});

test("it turns for a quarter of a millisecond at the most, counted from the first call and from each answer", () => {
  const wait = awake.sent();
  turns(20);
  awake.sent();
  expect(turns()).toBe(5);
  expect(due).toEqual([]);

  turns();
  callInVain();
  const [first, second] = [awake.sent(), awake.sent()];
  expect([first, second].map((each) => each > wait)).toEqual([true, true]);
  turns(20);
  awake.answered(first);
  // A sum of hundredths may come to a little less than it should.
  expect([25, 26]).toContain(turns());
});

test("it turns for as long as it is told that waiting is worth", () => {
  awake = new StayAwake({ ...options(2), limitMs: 1 });
  awake.sent();
  expect([100, 101]).toContain(turns());
});

test("where answers take longer, it is tried ever more seldom, up to once in 1,025 calls", () => {
  const tried = Array.from({ length: 5_000 }, callInVain);
  const places = tried.flatMap((turned, index) => (turned ? [index] : []));
  const between = places.map((place, index) => place - (places[index - 1] ?? -1) - 1);
  expect(between).toEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 1_024, 1_024]);
});

/** Calls at random times, for five seconds. Tells the share of the time in which the loop was kept turning. */
function shareAwake(callsPerSecond: number, roundTripMs: number): number {
  const stepMs = 0.01;
  const steps = 5_000 / stepMs;
  const answers: { readonly atMs: number; readonly wait: number }[] = [];
  let seed = 1;
  let nextMs = 0;
  let turned = 0;
  for (let step = 0; step < steps; step++) {
    nowMs += stepMs;
    while (answers[0] !== undefined && answers[0].atMs <= nowMs) awake.answered(answers.shift()!.wait);
    for (; nextMs <= nowMs; nextMs += -Math.log(seed / 2_147_483_647) * (1_000 / callsPerSecond)) {
      answers.push({ atMs: nowMs + roundTripMs, wait: awake.sent() });
      seed = (seed * 16_807) % 2_147_483_647;
    }
    if (due.length > 0) turned++;
    for (const callback of due.splice(0)) callback();
  }
  return turned / steps;
}

test.each([0.5, 1, 5, 20])(
  "over a network of %d ms next to no time is spent on it, however many calls are under way",
  (roundTripMs) => {
    for (const callsPerSecond of [100, 2_000, 8_000]) {
      nowMs = 0;
      due = [];
      awake = open(2);
      expect(shareAwake(callsPerSecond, roundTripMs)).toBeLessThan(0.01);
    }
  },
);

test("one answer in time, and it is done for every call again", () => {
  Array.from({ length: 100 }, callInVain);
  let skipped = 0;
  let wait = awake.sent();
  for (; due.length === 0; skipped++) {
    awake.answered(wait);
    wait = awake.sent();
  }
  expect(skipped).toBeGreaterThan(10);
  turns(3);
  awake.answered(wait);
  turns();
  for (let call = 0; call < 3; call++) {
    wait = awake.sent();
    expect(turns(3)).toBe(3);
    awake.answered(wait);
    turns();
  }
  // Nor is it given up for longer than at first.
  expect([callInVain(), callInVain(), callInVain()]).toEqual([true, false, true]);
});

test("a call that is never answered costs later ones nothing", () => {
  awake.sent();
  turns();
  callInVain();
  for (let call = 0; call < 3; call++) {
    const wait = awake.sent();
    expect(turns(3)).toBe(3);
    awake.answered(wait);
    expect(turns()).toBe(1);
  }
});

test("with one processor the server is given it", () => {
  awake = open(1);
  const wait = awake.sent();
  expect(due).toEqual([]);
  awake.answered(wait);
});
