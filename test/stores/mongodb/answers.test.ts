/** What the store makes of answers that no server here can be brought to give. */
import type { Durability } from "holdfast";
import { describe, expect, test } from "vitest";
import type { Change } from "../../../src/stores/cas/index.ts";
import { checkServer, faultOf } from "../../../src/stores/mongodb/readiness.ts";
import {
  deleteCommand,
  endOfPrefix,
  markCommand,
  refusedOf,
  updateCommand,
} from "../../../src/stores/mongodb/statements.ts";

const mongod = { isWritablePrimary: true, maxWireVersion: 25, localTime: new Date(), setName: "rs0" };

describe("mongodb: the reply to hello", () => {
  test.each<[string, object, Durability, string]>([
    ["mongos", { ...mongod, msg: "isdbgrid", setName: undefined }, "local", "UNSUPPORTED"],
    ["a server that is too old", { ...mongod, maxWireVersion: 7 }, "local", "UNSUPPORTED"],
    ["a secondary", { ...mongod, isWritablePrimary: false }, "local", "STORE_UNAVAILABLE"],
    [
      "a secondary that has but the old name for it",
      { ...mongod, isWritablePrimary: undefined, ismaster: false },
      "local",
      "STORE_UNAVAILABLE",
    ],
    ["a server without a clock", { ...mongod, localTime: undefined }, "local", "UNSUPPORTED"],
    [
      "a lone server where a quorum is asked for",
      { ...mongod, setName: undefined },
      "quorum",
      "DURABILITY_UNAVAILABLE",
    ],
  ])("%s is refused", (_, reply, durability, code) => {
    // What it is, and then what to do.
    const message = expect.stringMatching(/^[A-Z].{10,}[.:,] \S.{10,}\.$/s);
    expect(() => checkServer(reply as never, durability)).toThrow(expect.objectContaining({ code, message }));
  });

  test("the error for a server that is too old names the oldest version", () => {
    const old = { ...mongod, maxWireVersion: 7 };
    expect(() => checkServer(old, "local")).toThrow(/Upgrade it to MongoDB 4\.2 or newer/);
  });

  test("a member of a replica set has change streams, a lone server has none", () => {
    expect(checkServer(mongod, "quorum")).toEqual({ replicated: true });
    expect(checkServer({ ...mongod, setName: undefined }, "local")).toEqual({ replicated: false });
  });
});

describe("mongodb: facts about a collection", () => {
  const own = [{ name: "_id_" }, { name: "holdfast_keep_until" }];

  test.each([
    ["capped", { capped: true, size: 4_096 }, own, "is capped"],
    ["with a collation", { collation: { locale: "de", strength: 1 } }, own, "has a collation"],
    [
      "that forgets",
      {},
      [...own, { name: "theirs", expireAfterSeconds: 0 }],
      'the index "theirs" with expire',
    ],
    [
      "with a unique index",
      {},
      [...own, { name: "theirs", unique: true }],
      'the index "theirs", which is unique',
    ],
  ])("one %s is refused", (_, options, indexes, fault) => {
    expect(faultOf(options, indexes)).toContain(fault);
  });

  test.each([
    ["that is new", {}, []],
    ["of ours", {}, own],
    ["that compares by bytes", { capped: false, collation: { locale: "simple" } }, own],
    ["whose _id is called unique", {}, [{ name: "_id_", unique: true }]],
    ["with another index", {}, [...own, { name: "theirs" }]],
  ])("one %s is not", (_, options, indexes) => {
    expect(faultOf(options, indexes)).toBeUndefined();
  });
});

describe("mongodb: the answer to a batch", () => {
  const change: Change = {
    key: "key",
    expected: "version",
    text: "{}",
    idle: false,
    keepUntilMs: 0,
    dropped: [],
    wakes: [],
  };
  const statements = [1, 2, 3].map((number) => ({ change, version: `${number}` }));

  test("says which statements were refused", () => {
    const writeErrors = [{ index: 1, code: 11_000 }];
    expect([...refusedOf({ n: 2, writeErrors }, statements)]).toEqual([[1, 11_000]]);
    expect([...refusedOf({ n: 3 }, statements)]).toEqual([]);
  });

  test.each([
    ["does not add up", { n: 2 }],
    ["does not add up", { n: 3, writeErrors: [{ index: 1, code: 66 }] }],
    ["says nothing", {}],
    ["No majority confirmed the write", { n: 3, writeConcernError: { code: 64 } }],
  ])("is an outage where it %s", (_, reply) => {
    expect(() => refusedOf(reply, statements)).toThrow(
      expect.objectContaining({ code: "STORE_UNAVAILABLE" }),
    );
  });

  test("a statement that must not insert and did has not been made", () => {
    const upserted = [{ index: 2, _id: { holdfast: "marker" } }];
    expect([...refusedOf({ n: 3, upserted }, statements)]).toEqual([[2, 11_000]]);
  });

  test("every write is confirmed by a majority, on its disks, or reported as unconfirmed", () => {
    const records = { name: "holdfast" } as never;
    const terms = { checksTime: true, streams: true, timeoutMs: 5_000 };
    const batch = { changes: [change], earliestMs: 1_000, latestMs: 2_000 };
    const writeConcern = { w: "majority", j: true, wtimeout: 5_000 };
    expect(updateCommand(records, statements, batch, terms)).toMatchObject({ writeConcern });
    expect(markCommand(records, 5_000)).toMatchObject({ writeConcern });
    expect(deleteCommand(records, ["key"], 1_000, 5_000)).toMatchObject({ writeConcern });
  });

  test("a server that compares its time gets texts as they are, and the times of the batch", () => {
    const batch = { changes: [change], earliestMs: 1_000, latestMs: 2_000 };
    const records = { name: "holdfast" } as never;
    const terms = { checksTime: true, streams: true, timeoutMs: 5_000 };
    const dollars = { change: { ...change, text: "$text" }, version: "$version" };
    const { updates, ordered } = updateCommand(records, [dollars], batch, terms) as {
      updates: { u: { $set: Record<string, unknown> }[]; upsert: boolean }[];
      ordered: boolean;
    };
    expect([ordered, updates[0]?.upsert]).toEqual([false, true]);
    const set = updates[0]!.u[0]!.$set;
    expect(set).toMatchObject({ text: { $literal: "$text" }, version: { $literal: "$version" } });
    expect(set["wakes"]).toEqual({ $literal: "[]" });
    expect(JSON.stringify(set["_id"])).toContain(new Date(1_000).toISOString());
    expect(JSON.stringify(set["_id"])).toContain(new Date(2_000).toISOString());
  });
});

test.each([
  ["", undefined],
  ["a", "b"],
  ["app:", "app;"],
  ["a\u{10ffff}", "b"],
  ["\u{10ffff}", undefined],
  ["\ud7ff", "\ue000"],
  ["\uffff", "\u{10000}"],
])("mongodb: all that begins with %j comes before %j", (prefix, end) => {
  expect(endOfPrefix(prefix)).toBe(end);
});
