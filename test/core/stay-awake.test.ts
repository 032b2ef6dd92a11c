import { beforeEach, expect, test } from "vitest";
import { StayAwake } from "../../src/core/stay-awake.ts";

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
  return new StayAwake({ nowMs: () => nowMs, nextTurn: (callback) => due.push(callback), processors });
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
  awake.sent();
  const turned = turns() > 0;
  nowMs += 1_000;
  awake.answered();
  return turned;
}

test("the loop turns until the answer has come", () => {
  awake.sent();
  expect(turns(5)).toBe(5);
  awake.answered();
  expect(turns()).toBe(1);
});

test("it turns for all calls that are under way, with one callback for all", () => {
  awake.sent();
  awake.sent();
  expect(due).toHaveLength(1);
  turns(5);
  awake.answered();
  expect(turns(5)).toBe(5);
  awake.answered();
  expect(turns()).toBe(1);
});

test("it turns for a quarter of a millisecond at the most, counted from the latest call", () => {
  awake.sent();
  turns(20);
  awake.sent();
  expect(turns()).toBe(25);
  expect(due).toEqual([]);
});

test("where answers take longer, it is tried ever more seldom, up to once in 1,025 calls", () => {
  const tried = Array.from({ length: 5_000 }, callInVain);
  const places = tried.flatMap((turned, index) => (turned ? [index] : []));
  const between = places.map((place, index) => place - (places[index - 1] ?? -1) - 1);
  expect(between).toEqual([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 1_024, 1_024]);
});

test("one answer in time, and it is done for every call again", () => {
  Array.from({ length: 100 }, callInVain);
  let skipped = 0;
  for (; due.length === 0; skipped++) {
    awake.sent();
    if (due.length === 0) awake.answered();
  }
  expect(skipped).toBeGreaterThan(10);
  turns(3);
  awake.answered();
  turns();
  for (let call = 0; call < 3; call++) {
    awake.sent();
    expect(turns(3)).toBe(3);
    awake.answered();
    turns();
  }
  // Nor is it given up for longer than at first.
  expect([callInVain(), callInVain(), callInVain()]).toEqual([true, false, true]);
});

test("calls that are not waited for like this still count when one is", () => {
  callInVain();
  awake.sent();
  expect(due).toEqual([]);
  awake.sent();
  turns(3);
  awake.answered();
  expect(turns(3)).toBe(3);
  awake.answered();
  expect(turns()).toBe(1);
});

test("with one processor the server is given it", () => {
  awake = open(1);
  awake.sent();
  expect(due).toEqual([]);
  awake.answered();
});
