import fc from "fast-check";
import { expect, test } from "vitest";
import { type HeapOrder, heapInsert, heapRemove, heapUpdate } from "../../src/record/heap.ts";

interface Item {
  rank: number;
  slot: number;
}

const byRank: HeapOrder<Item> = {
  before: (a, b) => a.rank < b.rank,
  slotOf: (item) => item.slot,
  setSlot: (item, slot) => {
    item.slot = slot;
  },
};

function heapOf(ranks: readonly number[]): Item[] {
  const heap: Item[] = [];
  for (const rank of ranks) heapInsert(heap, { rank, slot: -1 }, byRank);
  return heap;
}

/** Takes out the first item until none is left. */
function drain(heap: Item[]): number[] {
  const ranks: number[] = [];
  for (let first = heap[0]; first !== undefined; first = heap[0]) {
    heapRemove(heap, first, byRank);
    ranks.push(first.rank);
  }
  return ranks;
}

function expectSound(heap: readonly Item[]): void {
  for (const [index, item] of heap.entries()) {
    expect(item.slot).toBe(index);
    if (index > 0) expect(heap[(index - 1) >> 1]!.rank).toBeLessThanOrEqual(item.rank);
  }
}

const sorted = (ranks: readonly number[]) => [...ranks].sort((a, b) => a - b);

test("heap: items come out in order, whatever order they went in", () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: 0, max: 30 })), (ranks) => {
      const heap = heapOf(ranks);
      expectSound(heap);
      expect(drain(heap)).toEqual(sorted(ranks));
    }),
  );
});

test("heap: any item can be removed, and the others stay in order", () => {
  fc.assert(
    fc.property(fc.array(fc.nat(30), { minLength: 1, maxLength: 40 }), fc.nat(), (ranks, pick) => {
      const heap = heapOf(ranks);
      const item = heap[pick % heap.length]!;
      heapRemove(heap, item, byRank);
      expect(heap).not.toContain(item);
      expect(heap).toHaveLength(ranks.length - 1);
      expectSound(heap);
    }),
  );
});

test("heap: an item whose rank changed either way is put right", () => {
  const input = fc.tuple(fc.array(fc.nat(30), { minLength: 1, maxLength: 40 }), fc.nat(), fc.nat(30));
  fc.assert(
    fc.property(input, ([ranks, pick, rank]) => {
      const heap = heapOf(ranks);
      const item = heap[pick % heap.length]!;
      item.rank = rank;
      heapUpdate(heap, item, byRank);
      expect(heap).toContain(item);
      expectSound(heap);
    }),
  );
});

test("heap: the replacement of a removed item may have to move up", () => {
  // The last item, 2, is smaller than the parent of the removed 11.
  const heap = heapOf([0, 10, 1, 11, 12, 3, 2]);
  heapRemove(heap, heap[3]!, byRank);
  expectSound(heap);
  expect(drain(heap)).toEqual([0, 1, 2, 3, 10, 12]);
});

test("heap: removing the last item moves nothing", () => {
  const heap = heapOf([1, 2, 3]);
  const last = heap[2]!;
  heapRemove(heap, last, byRank);
  expect(heap.map((item) => item.rank)).toEqual([1, 2]);
});

test("heap: equal items do not move past each other", () => {
  const heap = heapOf([5, 5, 5]);
  const items = [...heap];
  heapUpdate(heap, heap[0]!, byRank);
  heapUpdate(heap, heap[2]!, byRank);
  expect(heap.map((item) => items.indexOf(item))).toEqual([0, 1, 2]);
});

test("heap: a heap of one item gives it back and is empty", () => {
  const heap = heapOf([7]);
  expect(heap[0]!.slot).toBe(0);
  expect(drain(heap)).toEqual([7]);
  expect(heap).toEqual([]);
});
