import { expect, test } from "vitest";
import { byBytes } from "../../../src/stores/postgres/statements.ts";

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
