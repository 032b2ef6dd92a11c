/** How many keys a process keeps in mind. */
import { expect, test } from "vitest";
import { Lanes } from "../../../src/stores/cas/lanes.ts";

const MAX_LANES = 100;

function most(lanes: Lanes, isActive: boolean): number {
  let count = 0;
  for (let nth = 0; nth < 10 * MAX_LANES; nth++) {
    lanes.of(`key ${nth}`).inFlight = isActive;
    count = Math.max(count, [...lanes.values()].length);
  }
  return count;
}

test("cas: no more keys are kept in mind than it was told to, unless they have something to do", () => {
  expect(most(new Lanes(MAX_LANES), false)).toBe(MAX_LANES);
  expect(most(new Lanes(MAX_LANES), true)).toBe(10 * MAX_LANES);
});
