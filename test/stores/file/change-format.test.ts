/** How changes cross to the thread of a folder. */
import { describe, expect, test } from "vitest";
import type { Change } from "../../../src/stores/cas/index.ts";
import { ChangeReader, packChange, packChanges } from "../../../src/stores/file/change-format.js";
import { keptUntilMs, textOf, versionOf } from "../../../src/stores/file/row-format.js";

function change(key: string, text: string | undefined, more: Partial<Change> = {}): Change {
  const nothing = { dropped: [], wakes: [] };
  return { key, text, expected: undefined, idle: false, keepUntilMs: 1_000, ...nothing, ...more };
}

/** All that the thread reads of them. */
function unpacked(changes: readonly Change[]) {
  const packed = packChanges(changes);
  const reader = ChangeReader.of(packed);
  return Array.from({ length: packed.count }, (_, nth) => {
    reader.next();
    const { key, name, hasRow } = reader;
    if (hasRow) reader.setVersion(100 + nth);
    const row = hasRow ? Buffer.from(reader.row) : undefined;
    return {
      key: key.toString(),
      isNamedByItsBytes: Buffer.from(name, "latin1").equals(key),
      expected: reader.expectedAt(nth),
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
      isNamedByItsBytes: true,
      expected: expected ?? 0,
      row:
        text === undefined
          ? undefined
          : { version: 100 + nth, untilMs: keepUntilMs, idle, text: Buffer.from(text).toString() },
    }));
    expect(unpacked(changes)).toEqual(expected);
  });

  test.each([plain, wide].map((changes) => ({ changes })))("can be read from anywhere", ({ changes }) => {
    const packed = packChanges(changes);
    const reader = ChangeReader.of(packed);
    const places = changes.map(() => {
      reader.next();
      return { at: reader.at, key: reader.key.toString() };
    });
    expect(reader.end).toBe(packed.bytes.length);
    for (const { at, key } of places.reverse()) {
      reader.goTo(at);
      expect(reader.key.toString()).toBe(key);
    }
  });

  test("are as those that are made one by one", () => {
    const packed = packChanges(wide);
    const reader = ChangeReader.of(packed);
    const start = reader.end;
    const each = wide.map(() => {
      reader.next();
      return packChange(reader.key, reader.row);
    });
    expect(Buffer.concat(each).equals(packed.bytes.subarray(start))).toBe(true);
  });

  test("may be none", () => {
    expect(unpacked([])).toEqual([]);
  });
});
