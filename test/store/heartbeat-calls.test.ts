import { expect, test } from "vitest";
import { heartbeatCalls } from "../../src/store/index.ts";

const due = (...silences: number[]) => silences.map((each) => ({ silences: each }));
const sizes = (claims: readonly { readonly silences: number }[]) =>
  heartbeatCalls(claims).map((call) => call.map(({ silences }) => silences));

test("heartbeat calls: all that were heard of go together, a thousand at a time", () => {
  expect(heartbeatCalls([])).toEqual([]);
  expect(sizes(due(0, 0, 0))).toEqual([[0, 0, 0]]);
  expect(heartbeatCalls(due(...Array(2_500).fill(0))).map(({ length }) => length)).toEqual([
    1_000, 1_000, 500,
  ]);
});

test("heartbeat calls: what was not heard of goes by itself, and never with what was", () => {
  expect(sizes(due(1, 0, 1, 0))).toEqual([[0, 0], [1], [1]]);
  expect(sizes(due(2, 0, 3, 1))).toEqual([[0], [2, 3], [1]]);
});

test("heartbeat calls: what hangs for long goes by itself less and less, so that its calls do not pile up", () => {
  const alone = Array.from({ length: 1_400 }, (_, nth) => nth + 1).filter(
    (silences) => sizes(due(0, silences, silences)).length === 3,
  );
  expect(alone).toEqual([1, 4, 16, 64, 256, 1_024]);
});
