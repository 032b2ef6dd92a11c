/** How changes cross to the thread of a folder. */
import { describe, expect, test } from "vitest";
import type { Change } from "../../../src/stores/cas/index.ts";
import { ChangeReader, countChanges, packChanges } from "../../../src/stores/file/change-format.js";
import { keptUntilMs, textOf, versionOf } from "../../../src/stores/file/row-format.js";

function change(key: string, text: string | undefined, more: Partial<Change> = {}): Change {
  const nothing = { dropped: [], wakes: [] };
  return { key, text, expected: undefined, idle: false, keepUntilMs: 1_000, ...nothing, ...more };
}

/** All that the thread reads of them. */
function unpacked(changes: readonly Change[], from = 0) {
  const packed = packChanges(changes);
  const reader = new ChangeReader(packed, from);
  return Array.from({ length: countChanges(packed) - from }, (_, nth) => {
    reader.next();
    const { key, expected, keepUntilMs, writes } = reader;
    const row = writes ? Buffer.from(reader.row(100 + nth)) : undefined;
    return {
      key: key.toString(),
      expected,
      keepUntilMs,
      row: row && {
        version: versionOf(row),
        untilMs: keptUntilMs(row),
        idle: row[16] === 1,
        text: textOf(row),
      },
    };
  });
}

const plain = [
  change("a", '{"v":1}', { expected: 7, keepUntilMs: 1_794_841_316_885.5 }),
  change("key:b", undefined, { expected: 2 ** 53 - 1 }),
  change("c", "{}", { idle: true }),
];
/** Characters of one to four bytes, and halves of one, which mean nothing together either. */
const wide = [
  change("schlüssel", '{"info":"é😀"}'),
  change("halb\ud83d", undefined),
  change("\ude00halb", "\ud83d"),
  change("鍵", undefined, { expected: 3 }),
  change("last", '{"v":1}', { expected: 4 }),
];

describe("file: changes for the thread", () => {
  test.each([
    ["one byte a character", plain],
    ["several bytes a character", wide],
  ])("are read as they were written: %s", (_, changes) => {
    const expected = changes.map(({ key, text, expected, idle, keepUntilMs }, nth) => ({
      key: Buffer.from(key).toString(),
      expected: expected ?? 0,
      keepUntilMs,
      row:
        text === undefined
          ? undefined
          : { version: 100 + nth, untilMs: keepUntilMs, idle, text: Buffer.from(text).toString() },
    }));
    expect(unpacked(changes)).toEqual(expected);
  });

  test.each([plain, wide].map((changes) => ({ changes })))(
    "can be read from any of them on",
    ({ changes }) => {
      for (let from = 0; from < changes.length; from++) {
        const keys = changes.slice(from).map(({ key }) => Buffer.from(key).toString());
        expect(unpacked(changes, from).map(({ key }) => key)).toEqual(keys);
      }
    },
  );

  test("may be none", () => {
    expect(unpacked([])).toEqual([]);
  });
});
