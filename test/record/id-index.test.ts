import fc from "fast-check";
import { expect, test } from "vitest";
import { IdIndex } from "../../src/record/id-index.ts";

class Item {
  readonly id: string;
  readonly nth: number;
  idHash = 0;
  idNext: this | undefined = undefined;

  constructor(id: string, nth: number) {
    this.id = id;
    this.nth = nth;
  }
}

/** Some items come, and some of all those that are there go. Long enough for most to count as having stayed. */
const step = fc.record({ added: fc.nat(2_000), removed: fc.nat(2_000), from: fc.nat() });

test("id index: finds what is there and nothing else, however long it has been there", () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 3, maxLength: 8 }), (steps) => {
      const index = new IdIndex<Item>();
      const there: Item[] = [];
      const gone: Item[] = [];
      for (const { added, removed, from } of steps) {
        for (let nth = 0; nth < added; nth++) {
          const item = new Item(`id:${there.length + gone.length}`, 0);
          index.add(item);
          there.push(item);
        }
        for (let nth = 0; nth < removed && there.length > 0; nth++) {
          const [item] = there.splice((from + nth) % there.length, 1);
          index.remove(item!);
          gone.push(item!);
        }
        expect(index.size).toBe(there.length);
        expect(there.every((item) => index.find(item.id) === item)).toBe(true);
        expect(gone.every((item) => index.find(item.id) === undefined)).toBe(true);
        expect(new Set(index.values())).toEqual(new Set(there));
      }
    }),
    { numRuns: 30 },
  );
});

test("id index: several items of one id are told apart, also when one has been there for long", () => {
  const index = new IdIndex<Item>();
  const first = new Item("id", 1);
  index.add(first);
  for (let nth = 0; nth < 5_000; nth++) index.add(new Item(`other:${nth}`, 0));
  const second = new Item("id", 2);
  index.add(second);
  expect(index.find("id", ({ nth }) => nth === 1)).toBe(first);
  expect(index.find("id", ({ nth }) => nth === 2)).toBe(second);
  index.remove(first);
  expect(index.find("id", ({ nth }) => nth === 1)).toBeUndefined();
  expect(index.find("id")).toBe(second);
});

test("id index: a removed item refers to no other", () => {
  const index = new IdIndex<Item>();
  const items = Array.from({ length: 3_000 }, (_, nth) => new Item(`id:${nth}`, 0));
  for (const item of items) index.add(item);
  for (const item of items) index.remove(item);
  expect(items.every((item) => item.idNext === undefined)).toBe(true);
  expect(index.size).toBe(0);
});
