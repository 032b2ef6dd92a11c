import { expect, test } from "vitest";
import { byBytes, inOrder } from "../../../src/stores/postgres/key-order.ts";
import { changeOf } from "./new-driver.ts";

/** From both sides of where UTF-16 and UTF-8 disagree, and of where characters get longer. */
const characters = [
  "a",
  "b",
  "~",
  "\u{80}",
  "\u{7ff}",
  "\u{800}",
  "\u{d7ff}",
  "\u{e000}",
  "\u{ffff}",
  "\u{10000}",
  "\u{10ffff}",
];

function everyTextUpTo(length: number): string[] {
  if (length === 0) return [""];
  const shorter = everyTextUpTo(length - 1);
  const longest = shorter.filter((text) => [...text].length === length - 1);
  return [...shorter, ...longest.flatMap((text) => characters.map((character) => text + character))];
}

test("postgres: keys have the order of their bytes, also beyond the characters that strings here compare well", () => {
  const texts = everyTextUpTo(2);
  for (const a of texts) {
    for (const b of texts) {
      const expected = Buffer.compare(Buffer.from(a), Buffer.from(b));
      if (Math.sign(byBytes(a, b)) !== expected) expect([a, b, byBytes(a, b)]).toEqual([a, b, expected]);
    }
  }
});

test("postgres: changes are put in order, and their places are known", () => {
  const changes = ["b", "\u{10000}", "a", "\u{ffff}"].map((key) => changeOf(key, undefined, "x"));
  const { changes: sorted, places } = inOrder(changes);
  expect(sorted.map(({ key }) => key)).toEqual(["a", "b", "\u{ffff}", "\u{10000}"]);
  expect(places).toEqual([2, 0, 3, 1]);
  expect(inOrder(sorted)).toEqual({ changes: sorted });
});
