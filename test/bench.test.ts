import { describe, expect, test } from "vitest";
import { alternate } from "../bench/rounds.ts";
import { ratioOf, spreadOf } from "../bench/statistics.ts";

describe("the statistics of the bench", () => {
  test("the median of an even number of values lies between the middle two", () => {
    expect(spreadOf([4, 1, 3, 2])).toEqual({ median: 2.5, min: 1, max: 4 });
    expect(spreadOf([9, 1, 5])).toEqual({ median: 5, min: 1, max: 9 });
  });

  test("a ratio is one of neighbours, not of totals", () => {
    expect(ratioOf([10, 1, 10], [10, 2, 10])).toEqual({ median: 1, min: 0.5, max: 1 });
  });

  test("rounds alternate, and the warm-up does not count", async () => {
    const order: string[] = [];
    const pair = await alternate(
      async () => order.push("ours"),
      async () => order.push("theirs"),
      2,
    );
    expect(order.every((who, index) => who === (index % 2 === 0 ? "ours" : "theirs"))).toBe(true);
    expect(pair.ours).toEqual([order.length - 3, order.length - 1]);
    expect(pair.theirs).toEqual([order.length - 2, order.length]);
  });
});
