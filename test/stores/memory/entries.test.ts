import fc from "fast-check";
import { expect, test } from "vitest";
import {
  acquire,
  emptyRecord,
  encodeRecord,
  isIdle,
  type LockRecord,
  release,
} from "../../../src/record/index.ts";
import { Entries, type Entry } from "../../../src/stores/memory/entries.ts";
import { claimRequest } from "../../record/claim-request.ts";

/** Somebody asks for one of a few keys with one of a few ids, or releases. */
const step = fc.record({
  does: fc.constantFrom("acquire", "acquire", "release"),
  key: fc.constantFrom("a", "b", "c"),
  id: fc.constantFrom("x", "y", "z"),
  limit: fc.constantFrom(1, 3),
  wait: fc.boolean(),
});

type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

function play({ does, key, id, limit, wait }: Step, record: LockRecord, nowMs: number): unknown {
  const turn = { nowMs, expiredMs: nowMs, stamp: BigInt(nowMs), granted: [] };
  if (does === "release") return release(record, { key, id }, turn);
  return acquire(record, claimRequest(id, { key, limit, wait, ttlMs: 1_000 }), 10, turn);
}

test("entries: what is kept of a record is all of it", () => {
  let soles = 0;
  let records = 0;
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60, size: "max" }), (steps) => {
      const entries = new Entries();
      const kept = new Map<string, Entry>();
      const plain = new Map<string, LockRecord>();
      steps.forEach((one, nth) => {
        const entry = kept.get(one.key) ?? entries.create(one.key);
        const expected = plain.get(one.key) ?? emptyRecord();
        kept.set(one.key, entry);
        plain.set(one.key, expected);
        const record = entries.open(entry);
        expect(encodeRecord(record)).toBe(encodeRecord(expected));
        expect(play(one, record, nth)).toEqual(play(one, expected, nth));
        expect(encodeRecord(record)).toBe(encodeRecord(expected));
        entries.close(entry, record);
        if (isIdle(expected)) {
          kept.delete(one.key);
          plain.delete(one.key);
        }
        if (entry.sole !== undefined) soles++;
        if (entry.record !== undefined) records++;
      });
    }),
  );
  expect(Math.min(soles, records)).toBeGreaterThan(100);
});

test("entries: a record that was left open by a failure is not used for another key", () => {
  const entries = new Entries();
  const failing = entries.open(entries.create("a"));
  play({ does: "acquire", key: "a", id: "x", limit: 1, wait: true }, failing, 1);
  expect(entries.open(entries.create("b")).held).toEqual([]);
});
