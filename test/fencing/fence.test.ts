import { createLocks, memoryStore } from "holdfast";
import {
  expectFenced,
  type Fenced,
  fencedFetch,
  fenceHeader,
  fenceOf,
  MAX_FENCE,
  parseFence,
  parseFenceHeader,
  postgresFenceMigration,
  StaleFenceError,
} from "holdfast/fencing";
import { ManualClock } from "holdfast/testing";
import { describe, expect, test } from "vitest";

describe("the fence of a write", () => {
  test("is that of the lease, as long as the lease is not known to be over", async () => {
    const clock = new ManualClock();
    const locks = createLocks(memoryStore({ clock }), { clock });
    const lost = await locks.mutex("report", { ttlMs: 1_000 }).acquire();
    const released = await locks.mutex("other").acquire();
    expect(fenceOf(lost)).toBe(lost.fence);
    clock.block(2_000);
    expect(() => fenceOf(lost)).toThrow(expect.objectContaining({ code: "LEASE_LOST" }));
    await released.release();
    expect(() => fenceOf(released)).toThrow(expect.objectContaining({ code: "NOT_HELD" }));
    await locks.close();
  });

  test.each([
    [{ fence: 0n }, "not bigint 0"],
    [{ fence: -1n }, "not bigint -1"],
    [{ fence: MAX_FENCE + 1n }, "not bigint 9223372036854775808"],
    [{ fence: 5 }, "not number 5"],
    [{ fence: "5" }, "Use parseFence"],
    [{}, "not undefined undefined"],
    [null, "not null"],
    [5n, "not 5"],
  ])("is refused as %o", (lease, words) => {
    expect(() => fenceOf(lease as unknown as Fenced)).toThrow(
      expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining(words) }),
    );
  });

  test("travels as text without a loss", () => {
    for (const fence of [1n, 2n ** 53n + 1n, MAX_FENCE]) expect(parseFence(String(fence))).toBe(fence);
  });

  test.each([
    "",
    "0",
    "-1",
    "01",
    "1.5",
    "1e3",
    "0x10",
    " 1",
    "1 ",
    "9223372036854775808",
    "99999999999999999999",
  ])("is not read from %o", (text) => {
    expect(() => parseFence(text)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });
});

describe("a statement with the fence in its row", () => {
  const lease = { fence: 5n, key: "report" };

  test("is stale when it changed nothing", () => {
    expect(() => expectFenced(0, lease)).toThrow(StaleFenceError);
    expect(() => expectFenced(0n, lease, { resource: "other" })).toThrow(
      expect.objectContaining({ code: "STALE_FENCE", key: "other", fence: 5n, mark: undefined }),
    );
    expect(expectFenced(1, lease)).toBeUndefined();
    expect(expectFenced(2n, lease)).toBeUndefined();
  });

  test.each([null, undefined, -1, 0.5, Number.NaN])("is not told from a count of %o", (count) => {
    expect(() => expectFenced(count, lease)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });
});

describe("the header", () => {
  test.each(["nightly-report", "a;b=c, d", "näßt/☃", "%41", 'a"b'])("carries the key %o", (key) => {
    const value = fenceHeader({ fence: MAX_FENCE, key });
    expect(value).toMatch(/^[\x21-\x7e]+$/);
    expect(parseFenceHeader(value)).toEqual({ fence: MAX_FENCE, key });
  });

  test("may leave the key to the service", () => {
    expect(parseFenceHeader("17")).toEqual({ fence: 17n });
    expect(parseFenceHeader(" 17 ; key=a ")).toEqual({ fence: 17n, key: "a" });
  });

  test.each([
    "",
    "abc",
    "0;key=a",
    "-5;key=a",
    "5;key=",
    "5;key=%zz",
    "5;key=a, 6;key=b",
    "5;name=a",
    "5;key=%0a",
    "5.0;key=a",
  ])("is refused as %o", (value) => {
    expect(() => parseFenceHeader(value)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  test("is not sent for a lease that is over", async () => {
    const locks = createLocks();
    const lease = await locks.mutex("report").acquire();
    await lease.release();
    await expect(fencedFetch(lease, "http://127.0.0.1:1/")).rejects.toMatchObject({ code: "NOT_HELD" });
    await locks.close();
  });
});

test.each(["", "a.b.c", 'a"b', "a`b", "a b", "1a", "a;drop", ".a", 5])("the table %o is refused", (table) => {
  expect(() => postgresFenceMigration({ table: table as string })).toThrow(
    expect.objectContaining({ code: "INVALID_ARGUMENT", message: expect.stringContaining("table") }),
  );
});
