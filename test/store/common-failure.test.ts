import { expect, test } from "vitest";
import { commonFailure } from "../../src/store/index.ts";

const outage = new Error("away");

test("common failure: of a call that has failed as a whole", async () => {
  const call = Promise.reject(outage);
  expect(commonFailure(await Promise.allSettled([call, call]))).toBe(outage);
  expect(commonFailure(await Promise.allSettled([call]))).toBe(outage);
});

test("common failure: none where each has its own, though both say the same", async () => {
  const calls = [Promise.reject(outage), Promise.reject(new Error("away"))];
  expect(commonFailure(await Promise.allSettled(calls))).toBeUndefined();
});

test.each([
  ["the first was answered", ["answered", outage]],
  ["the last was answered", [outage, "answered"]],
  ["nothing was asked", []],
])("common failure: none where %s", async (_, ends) => {
  const calls = ends.map((end) => (end === outage ? Promise.reject(end) : Promise.resolve(end)));
  expect(commonFailure(await Promise.allSettled(calls))).toBeUndefined();
});
