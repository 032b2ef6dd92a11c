import { expect, test } from "vitest";
import { KeyQueues } from "../../../src/stores/cas/key-queues.ts";

const MAX_KEYS = 100;

function most(queues: KeyQueues, isActive: boolean): number {
  let count = 0;
  for (let nth = 0; nth < 10 * MAX_KEYS; nth++) {
    queues.of(`key ${nth}`).isSent = isActive;
    count = Math.max(count, [...queues.values()].length);
  }
  return count;
}

test("cas: a store caches up to cachedKeys records, and more only while they are in use", () => {
  expect(most(new KeyQueues(MAX_KEYS), false)).toBe(MAX_KEYS);
  expect(most(new KeyQueues(MAX_KEYS), true)).toBe(10 * MAX_KEYS);
});
