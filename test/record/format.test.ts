import { readFileSync } from "node:fs";
import { expect, describe as suite, test } from "vitest";
import { decodeRecord, encodeRecord, RECORD_VERSION } from "../../src/record/format.ts";
import {
  acquire,
  emptyRecord,
  findClaim,
  isIdle,
  type LockRecord,
  renew,
  setEnd,
  settle,
} from "../../src/record/record.ts";
import { describe } from "../../src/record/view.ts";
import { HoldfastError } from "../../src/store/errors.ts";
import { type ClaimRequest, UNLIMITED } from "../../src/store/store.ts";
import { claimRequest } from "./claim-request.ts";
import { assertInvariants } from "./invariants.ts";

function recordOf(...requests: readonly ClaimRequest[]): LockRecord {
  const record = emptyRecord();
  for (const request of requests) {
    acquire(record, request, 100, { nowMs: 1_000, expiredMs: 1_000, stamp: 70n, granted: [] });
  }
  return record;
}

/** The error with which a stored text is rejected. */
function rejection(text: string): HoldfastError {
  try {
    decodeRecord(text, "orders:7");
  } catch (error) {
    if (error instanceof HoldfastError) return error;
    throw error;
  }
  throw new Error(`was read: ${text}`);
}

const heldClaim = { id: "a", ttlMs: 100, expiresAtMs: 1_100, fence: "70", acquiredAtMs: 1_000 };
const waitingClaim = { id: "b", ttlMs: 100, expiresAtMs: 1_100 };

/** A sound record with some fields replaced; `undefined` leaves one out. */
function storedWith(changes: {
  record?: Record<string, unknown>;
  held?: Record<string, unknown>;
  waiting?: Record<string, unknown>;
}): string {
  return JSON.stringify({
    v: 1,
    fence: "70",
    held: [{ ...heldClaim, ...changes.held }],
    waiting: [{ ...waitingClaim, ...changes.waiting }],
    ...changes.record,
  });
}

suite("record-format: what is written", () => {
  test.each(['a"b', "a\\b", "a\nb", "\u007f", "\u2028", "ä", "\ud83d\ude00", "\ud800", " ", "[]^_~!#"])(
    "record-format: %j is written as JSON writes it, wherever it stands",
    (text) => {
      const said = { token: `${text}t`, owner: text, info: text, application: text };
      const next = `${text}2`;
      const record = recordOf(claimRequest(text, said), claimRequest(next, { ...said, priority: -3 }));
      const written = encodeRecord(record);
      expect(written).toBe(JSON.stringify(JSON.parse(written)));
      expect(JSON.parse(written)).toMatchObject({
        held: [{ ...said, id: text }],
        waiting: [{ ...said, id: next }],
      });
      expect(encodeRecord(decodeRecord(written, "key"))).toBe(written);
    },
  );

  test("record-format: version 1 is written exactly so", () => {
    expect(RECORD_VERSION).toBe(1);
    const record = recordOf(
      claimRequest("reader", {
        token: "t1",
        weight: 2,
        limit: UNLIMITED,
        priority: 3,
        ttlMs: 30_000,
        owner: "client-1",
        info: "nightly",
        application: "billing",
      }),
      claimRequest("writer", { ttlMs: 500 }),
      claimRequest("permit", { token: "t2", weight: 3, limit: 4, priority: 9, ttlMs: 700 }),
    );
    expect(encodeRecord(record)).toBe(
      '{"v":1,"fence":"70",' +
        '"held":[{"id":"reader","ttlMs":30000,"expiresAtMs":31000,"token":"t1","weight":2,"limit":0,"priority":3,' +
        '"owner":"client-1","info":"nightly","application":"billing","fence":"70","acquiredAtMs":1000}],' +
        '"waiting":[{"id":"permit","ttlMs":700,"expiresAtMs":1700,"token":"t2","weight":3,"limit":4,"priority":9},' +
        '{"id":"writer","ttlMs":500,"expiresAtMs":1500}]}',
    );
  });

  test("record-format: a plain mutex claim is written without its defaults", () => {
    expect(encodeRecord(recordOf(claimRequest("a")))).toBe(
      '{"v":1,"fence":"70","held":[{"id":"a","ttlMs":100,"expiresAtMs":1100,"fence":"70","acquiredAtMs":1000}],"waiting":[]}',
    );
  });

  test("record-format: an empty record is written with its fence", () => {
    const record = emptyRecord();
    record.fence = 5n;
    expect(encodeRecord(record)).toBe('{"v":1,"fence":"5","held":[],"waiting":[]}');
  });

  test("record-format: holders are written in order of grant and waiters in order of turn", () => {
    const readers = [900, 800, 700, 600].map((ttlMs) =>
      claimRequest(`r${ttlMs}`, { limit: UNLIMITED, ttlMs }),
    );
    const writers = [900, 800, 700, 600].map((ttlMs) =>
      claimRequest(`w${ttlMs}`, { ttlMs, priority: ttlMs === 600 ? 1 : 0 }),
    );
    const stored = JSON.parse(encodeRecord(recordOf(...readers, ...writers)));
    const ids = (claims: { id: string }[]) => claims.map((claim) => claim.id);
    expect(ids(stored.held)).toEqual(["r900", "r800", "r700", "r600"]);
    expect(ids(stored.waiting)).toEqual(["w600", "w900", "w800", "w700"]);
  });
});

suite("record-format: what is read back", () => {
  test("record-format: a record is read back as it was", () => {
    const label = { owner: "o", info: 'é"\\\n😀', application: "app" };
    const record = recordOf(
      claimRequest("a", { limit: UNLIMITED, ttlMs: 900, ...label }),
      claimRequest("b", { limit: 5, weight: 2, token: "t", ttlMs: 300 }),
      ...Array.from({ length: 12 }, (_, n) => claimRequest(`w${n}`, { priority: n % 3, ...label })),
    );
    const copy = decodeRecord(encodeRecord(record), "k");
    assertInvariants(copy);
    expect(describe(copy, "k", 1_000, 100)).toEqual(describe(record, "k", 1_000, 100));
    expect(encodeRecord(copy)).toBe(encodeRecord(record));
  });

  test("record-format: tokens are read back, the claim's id where none is written", () => {
    const record = recordOf(
      claimRequest("a", { token: "secret", limit: 2 }),
      claimRequest("b", { limit: 2 }),
    );
    const copy = decodeRecord(encodeRecord(record), "k");
    const turn = { nowMs: 1_000, expiredMs: 1_000, stamp: 0n, granted: [] };
    expect(renew(copy, { key: "k", id: "a", token: "a" }, turn).state).toBe("gone");
    expect(renew(copy, { key: "k", id: "a", token: "secret" }, turn).state).toBe("held");
    expect(renew(copy, { key: "k", id: "b", token: "b" }, turn).state).toBe("held");
  });

  test("record-format: who comes after a read stands behind those who were there", () => {
    const record = recordOf(claimRequest("a"), claimRequest("b"), claimRequest("c"));
    const copy = decodeRecord(encodeRecord(record), "k");
    acquire(copy, claimRequest("d"), 100, { nowMs: 1_000, expiredMs: 1_000, stamp: 0n, granted: [] });
    expect(describe(copy, "k", 1_000, 100).waiting.map((claim) => claim.id)).toEqual(["b", "c", "d"]);
  });

  test("record-format: a record with nobody but waiters is not idle", () => {
    expect(isIdle(decodeRecord(storedWith({ record: { held: [] } }), "k"))).toBe(false);
  });

  test("record-format: fields left out are read as their defaults", () => {
    const [held] = decodeRecord(storedWith({}), "k").held;
    expect(held).toMatchObject({
      id: "a",
      token: "a",
      weight: 1,
      limit: 1,
      priority: 0,
      owner: "",
      info: "",
      application: "",
      fence: 70n,
      acquiredAtMs: 1_000,
    });
    const [waiting] = decodeRecord(storedWith({}), "k").queue;
    expect(waiting).toMatchObject({ id: "b", fence: 0n, acquiredAtMs: 0 });
  });

  test("record-format: a limit of 0 is read as unlimited", () => {
    expect(decodeRecord(storedWith({ held: { limit: 0 } }), "k").held[0]?.limit).toBe(UNLIMITED);
  });

  test("record-format: fences beyond 2^53 keep every digit", () => {
    const fence = 18_446_744_073_709_551_615n;
    const text = storedWith({ record: { fence: `${fence}` }, held: { fence: `${fence - 1n}` } });
    const record = decodeRecord(text, "k");
    expect(record.fence).toBe(fence);
    expect(record.held[0]?.fence).toBe(fence - 1n);
    expect(encodeRecord(record)).toContain('"fence":"18446744073709551615"');
  });
});

suite("record-format: what is rejected", () => {
  test("record-format: a rejection names the key, the reason and what to do", () => {
    const error = rejection("{broken");
    expect(error.code).toBe("STORE_FAILURE");
    expect(error.key).toBe("orders:7");
    expect(error.cause).toBeInstanceOf(SyntaxError);
    expect(error.message).toBe(
      'The record of "orders:7" cannot be read: it is not JSON. It was not changed. ' +
        "Upgrade Holdfast if a newer release wrote it, or delete the record once no process holds the lock.",
    );
  });

  test.each([
    ["a future version", storedWith({ record: { v: 2 } }), "its version is 2, this release reads 1"],
    ["a version of 0", storedWith({ record: { v: 0 } }), "its version is 0, this release reads 1"],
    ["a version as text", storedWith({ record: { v: "1" } }), 'its version is "1", this release reads 1'],
    ["no version", "{}", "its version is undefined, this release reads 1"],
    ["a list", "[]", "its version is undefined, this release reads 1"],
    ["an empty text", "", "it is not JSON"],
    ["a cut text", storedWith({}).slice(0, -1), "it is not JSON"],
    ["null", "null", "the record is not an object"],
    ["a number", "7", "the record is not an object"],
    ["a text", '"x"', "the record is not an object"],
    ["no fence", storedWith({ record: { fence: undefined } }), '"fence" is not a text'],
    ["a fence as number", storedWith({ record: { fence: 70 } }), '"fence" is not a text'],
    ["an empty fence", storedWith({ record: { fence: "" } }), '"fence" is not a decimal number'],
    ["a negative fence", storedWith({ record: { fence: "-1" } }), '"fence" is not a decimal number'],
    ["a hexadecimal fence", storedWith({ record: { fence: "0x10" } }), '"fence" is not a decimal number'],
    ["a padded fence", storedWith({ record: { fence: "70 " } }), '"fence" is not a decimal number'],
    [
      "a fence of 21 digits",
      storedWith({ record: { fence: "1".repeat(21) } }),
      '"fence" is not a decimal number',
    ],
    ["no holders' list", storedWith({ record: { held: undefined } }), '"held" is not a list'],
    ["no waiters' list", storedWith({ record: { waiting: undefined } }), '"waiting" is not a list'],
    ["an object for a list", storedWith({ record: { held: {} } }), '"held" is not a list'],
    ["null for a holder", storedWith({ record: { held: [null] } }), 'an entry of "held" is not an object'],
    [
      "a text for a waiter",
      storedWith({ record: { waiting: ["b"] } }),
      'an entry of "waiting" is not an object',
    ],
  ])("record-format: %s is rejected", (_, text, reason) => {
    const error = rejection(text);
    expect(error.code).toBe("STORE_FAILURE");
    expect(error.message).toContain(`The record of "orders:7" cannot be read: ${reason}. `);
  });

  const texts = ["id", "token", "owner", "info", "application"];
  const numbers = ["weight", "limit", "priority", "ttlMs", "expiresAtMs"];

  test.each(texts)("record-format: a claim's %s that is no text is rejected", (name) => {
    expect(rejection(storedWith({ held: { [name]: 7 } })).message).toContain(`"${name}" is not a text`);
    expect(rejection(storedWith({ waiting: { [name]: {} } })).message).toContain(`"${name}" is not a text`);
  });

  test.each(numbers)("record-format: a claim's %s that is no number is rejected", (name) => {
    expect(rejection(storedWith({ held: { [name]: "7" } })).message).toContain(
      `"${name}" is not a whole number`,
    );
    expect(rejection(storedWith({ waiting: { [name]: true } })).message).toContain(
      `"${name}" is not a whole number`,
    );
  });

  test.each(["id", "fence"])("record-format: a holder without %s is rejected", (name) => {
    expect(rejection(storedWith({ held: { [name]: undefined } })).message).toContain(
      `"${name}" is not a text`,
    );
  });

  test.each(["ttlMs", "expiresAtMs", "acquiredAtMs"])(
    "record-format: a holder without %s is rejected",
    (name) => {
      const { message } = rejection(storedWith({ held: { [name]: undefined } }));
      expect(message).toContain(`"${name}" is not a whole number`);
    },
  );

  test.each(numbers)("record-format: a claim's %s that is beyond all numbers is rejected", (name) => {
    const text = storedWith({ waiting: { [name]: "beyond" } }).replace('"beyond"', "1e999");
    expect(rejection(text).message).toContain(`"${name}" is not a whole number`);
  });

  test.each(numbers)(
    "record-format: a claim's %s with a fraction, or too large to be exact, is rejected",
    (name) => {
      for (const value of [1_794_887_403_684.5, 2 ** 53]) {
        expect(rejection(storedWith({ held: { [name]: value } })).message).toContain(
          `"${name}" is not a whole number`,
        );
      }
    },
  );

  test("record-format: a holder's fence is from 1 to the record's", () => {
    const reason = 'the fence of "a" is not from 1 to the record\'s';
    expect(rejection(storedWith({ held: { fence: "0" } })).message).toContain(reason);
    expect(rejection(storedWith({ held: { fence: "71" } })).message).toContain(reason);
    expect(decodeRecord(storedWith({ held: { fence: "1" } }), "k").held[0]?.fence).toBe(1n);
    expect(decodeRecord(storedWith({ held: { fence: "70" } }), "k").held[0]?.fence).toBe(70n);
  });

  test("record-format: a weight is from 1 to the claim's limit", () => {
    const reason = 'the weight of "b" is not from 1 to its limit';
    expect(rejection(storedWith({ waiting: { weight: 0 } })).message).toContain(reason);
    expect(rejection(storedWith({ waiting: { weight: 2 } })).message).toContain(reason);
    expect(rejection(storedWith({ waiting: { limit: -1 } })).message).toContain(reason);
    expect(decodeRecord(storedWith({ waiting: { weight: 2, limit: 2 } }), "k").queue[0]?.weight).toBe(2);
    expect(decodeRecord(storedWith({ waiting: { weight: 2, limit: 0 } }), "k").queue[0]?.weight).toBe(2);
  });
});

suite("record-format: etcdLeases", () => {
  test("record-format: a claim with a etcdLease says nothing of time, and is read as one that does not end", () => {
    const record = recordOf(claimRequest("a"), claimRequest("b"));
    for (const claim of [...record.held, ...record.queue]) claim.etcdLease = "somebody";
    const text = encodeRecord(record);
    for (const claim of [...record.held, ...record.queue]) setEnd(record, claim, claim.expiresAtMs + 1_000);
    expect(encodeRecord(record)).toBe(text);
    const again = decodeRecord(text, "k");
    assertInvariants(again);
    for (const claim of [...again.held, ...again.queue]) {
      expect([claim.etcdLease, claim.expiresAtMs]).toEqual(["somebody", Number.MAX_SAFE_INTEGER]);
    }
    expect(encodeRecord(again)).toBe(text);
  });

  test("record-format: an end can be moved both ways, and the next to end stays first", () => {
    const limit = 9;
    const record = recordOf(...["a", "b", "c", "d"].map((id) => claimRequest(id, { limit })));
    const [a, b, c, d] = ["a", "b", "c", "d"].map((id) => findClaim(record, id)!);
    setEnd(record, c!, 5);
    setEnd(record, a!, 50_000_000);
    assertInvariants(record);
    settle(record, { nowMs: 5, expiredMs: 5, stamp: 0n, granted: [] });
    expect(record.held.map(({ id }) => id).sort()).toEqual([a!, b!, d!].map(({ id }) => id));
  });
});

suite("record-format: its documentation", () => {
  const page = readFileSync(new URL("../../docs/record-format.md", import.meta.url), "utf8");
  const example = /```json\n(.*?)```/s.exec(page)?.[1] ?? "";

  test("record-format: the documented example is read, and written again as it is", () => {
    const record = decodeRecord(example, "k");
    assertInvariants(record);
    expect(record.held).toHaveLength(2);
    expect(record.queue).toHaveLength(2);
    expect(encodeRecord(record)).toBe(JSON.stringify(JSON.parse(example)));
  });

  test("record-format: every field that is written is documented, and no other", () => {
    const label = { owner: "o", info: "i", application: "app" };
    const everything = claimRequest("a", { token: "t", weight: 2, limit: 3, priority: 1, ...label });
    const record = recordOf(everything, { ...everything, token: "taken over" });
    for (const claim of record.held) claim.agreedBy = "somebody";
    const stored = JSON.parse(encodeRecord(record));
    for (const claim of record.held) claim.etcdLease = "somebody";
    const kept = Object.keys(JSON.parse(encodeRecord(record)).held[0]);
    const [, recordTable, claimTable] = page.split(/\n## (?:The record|A claim)\n/);
    const documented = (table = "") => [...table.matchAll(/^\| `(\w+)` *\|/gm)].map((row) => row[1]);
    expect(documented(recordTable)).toEqual(Object.keys(stored));
    const claimFields = Object.keys(stored.held[0]);
    expect(kept).toEqual(claimFields.map((name) => (name === "expiresAtMs" ? "etcdLease" : name)));
    expect(documented(claimTable)).toEqual(
      claimFields.flatMap((name) => (name === "expiresAtMs" ? [name, "etcdLease"] : name)),
    );
  });

  test("record-format: the documented version is the one that is written", () => {
    expect(page).toContain(`This page describes **version ${RECORD_VERSION}**.`);
  });
});
