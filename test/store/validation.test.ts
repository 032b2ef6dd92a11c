import { expect, describe as suite, test } from "vitest";
import { createLocks } from "../../src/client/locks.ts";
import { HoldfastError } from "../../src/store/errors.ts";
import { type ClaimRequest, UNLIMITED } from "../../src/store/store.ts";
import {
  bounds,
  checkApplication,
  checkBoolean,
  checkChoice,
  checkDuration,
  checkId,
  checkInfo,
  checkInteger,
  checkKey,
  checkPrefix,
  checkPriority,
  checkQuery,
  checkRenewRef,
  checkRequest,
  checkTtl,
  invalid,
} from "../../src/store/validation.ts";
import { memoryStore } from "../../src/stores/memory/index.ts";
import { claimRequest } from "../record/claim-request.ts";

/** The message with which a value is rejected. */
function rejection(check: () => unknown): string {
  try {
    check();
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    expect((error as HoldfastError).code).toBe("INVALID_ARGUMENT");
    return (error as HoldfastError).message;
  }
  throw new Error("was accepted");
}

/** A value of a type that the compiler would not let through, as callers without one can send it. */
function untyped<T>(value: unknown): T {
  return value as T;
}

const texts = [
  { name: "key", check: checkKey, min: 1, max: 512 },
  { name: "prefix", check: checkPrefix, min: 0, max: 512 },
  { name: "id", check: checkId, min: 1, max: 128 },
  { name: "info", check: checkInfo, min: 0, max: 1_024 },
  { name: "application", check: checkApplication, min: 0, max: 256 },
  { name: "owner", check: requestField("owner"), min: 0, max: 256 },
  { name: "token", check: requestField("token"), min: 1, max: 128 },
];

/** Checks one field as part of a whole request. */
function requestField(name: keyof ClaimRequest) {
  return (value: unknown): unknown => {
    checkRequest({ ...claimRequest("a"), [name]: value });
    return value;
  };
}

suite.each(texts)("validation: the text $name", ({ name, check, min, max }) => {
  const range = `${name} must be ${min} to ${max} bytes of UTF-8, not`;

  test(`validation: ${name} may be as long as ${max} bytes and no longer`, () => {
    expect(check("x".repeat(max))).toBe("x".repeat(max));
    const shown = JSON.stringify(`${"x".repeat(40)}…`);
    expect(rejection(() => check("x".repeat(max + 1)))).toBe(`${range} ${max + 1} (${shown}).`);
  });

  test(`validation: ${name} is measured in bytes of UTF-8, not in characters`, () => {
    const fourBytes = "😀".repeat(max / 4);
    expect(check(fourBytes)).toBe(fourBytes);
    expect(rejection(() => check(`${fourBytes}x`))).toContain(`${range} ${max + 1} (`);
    const threeBytes = `${"€".repeat(Math.floor(max / 3))}${"x".repeat(max % 3)}`;
    expect(check(threeBytes)).toBe(threeBytes);
    expect(rejection(() => check(`${threeBytes}x`))).toContain(`${range} ${max + 1} (`);
    expect(rejection(() => check("é".repeat(max / 2 + 1)))).toContain(`${range} ${max + 2} (`);
  });

  test(`validation: ${name} may be ${min === 0 ? "empty" : "one byte and not empty"}`, () => {
    expect(check("x")).toBe("x");
    if (min === 0) expect(check("")).toBe("");
    else expect(rejection(() => check(""))).toBe(`${range.replace(/, not$/, "")}, but it is empty.`);
  });

  test.each([
    ["a null character", "a\0b", '"a\\u0000b"'],
    ["a line break", "a\nb", '"a\\nb"'],
    ["a tab", "\t", '"\\t"'],
    ["a delete character", "a\x7f", '"a\x7f"'],
    ["a C1 control character", "\x9f", '"\x9f"'],
    ["a lone high surrogate", "a\ud83d", '"a\\ud83d"'],
    ["a lone low surrogate", "\ude00a", '"\\ude00a"'],
    ["surrogates in the wrong order", "\ude00\ud83d", '"\\ude00\\ud83d"'],
  ])(`validation: ${name} may not contain %s`, (_, value, shown) => {
    expect(rejection(() => check(value))).toBe(
      `${name} must be well-formed text without control characters, not ${shown}.`,
    );
  });

  test(`validation: ${name} may contain any printable text`, () => {
    for (const value of ["a b", "ключ", "鍵", "😀", "a:b/c{d}*?", "\u00a0", "\u2028", "\ufeff"]) {
      expect(check(value)).toBe(value);
    }
  });

  test.each([
    [undefined, "undefined"],
    [null, "null"],
    [7, "7"],
    [7n, "7"],
    [true, "true"],
    [{}, "an object"],
    [["a"], "an object"],
    [Buffer.from("a"), "an object"],
    [Symbol("a"), "Symbol(a)"],
  ])(`validation: ${name} may not be %o`, (value, shown) => {
    expect(rejection(() => check(untyped(value)))).toBe(`${name} must be a string, not ${shown}.`);
  });
});

const integers = [
  { name: "ttlMs", check: checkTtl, min: 10, max: 86_400_000 },
  { name: "priority", check: checkPriority, min: 0, max: 65_535 },
  { name: "limit", check: requestField("limit"), min: 1, max: 1_000_000_000 },
  { name: "weight", check: checkWeight, min: 1, max: 1_000_000_000 },
  { name: "maxClaims", check: checkMaxClaims, min: 0, max: 10_000 },
  { name: "limit", check: checkPageLimit, min: 1, max: 1_000 },
];

function checkWeight(weight: number): number {
  checkRequest(claimRequest("a", { weight, limit: UNLIMITED }));
  return weight;
}

function checkMaxClaims(maxClaims: number): number {
  checkQuery({ key: "k", maxClaims });
  return maxClaims;
}

function checkPageLimit(limit: number): number {
  checkQuery({ prefix: "", limit, maxClaims: 0 });
  return limit;
}

suite.each(integers)("validation: the number $name up to $max", ({ name, check, min, max }) => {
  test(`validation: ${name} may be anything from ${min} to ${max}`, () => {
    expect(check(min)).toBe(min);
    expect(check(min + 1)).toBe(min + 1);
    expect(check(max)).toBe(max);
  });

  test.each([
    [min - 1, String(min - 1)],
    [max + 1, String(max + 1)],
    [min + 0.5, String(min + 0.5)],
    [1e300, "1e+300"],
    [Number.MIN_VALUE, "5e-324"],
    [Number.NaN, "NaN"],
    [Number.POSITIVE_INFINITY, "Infinity"],
    [Number.NEGATIVE_INFINITY, "-Infinity"],
    ["50", '"50"'],
    [50n, "50"],
    [null, "null"],
    [undefined, "undefined"],
    [true, "true"],
    [[50], "an object"],
    [new Date(50), "an object"],
  ])(`validation: ${name} may not be %o`, (value, shown) => {
    expect(rejection(() => check(untyped(value)))).toBe(
      `${name} must be a whole number from ${min} to ${max}, not ${shown}.`,
    );
  });

  test(`validation: ${name} takes a negative zero for a zero`, () => {
    if (min === 0) expect(check(-0) === 0).toBe(true);
    else expect(rejection(() => check(-0))).toContain(`from ${min} to ${max}, not 0.`);
  });
});

suite("validation: the rest of a request", () => {
  test("validation: a limit may be without end, and no other number beyond the bound", () => {
    expect(() => checkRequest(claimRequest("a", { limit: UNLIMITED }))).not.toThrow();
    expect(rejection(() => checkRequest(claimRequest("a", { limit: UNLIMITED - 1 })))).toContain(
      "limit must be",
    );
  });

  test("validation: a weight is within its own limit", () => {
    expect(() => checkRequest(claimRequest("a", { weight: 4, limit: 4 }))).not.toThrow();
    expect(rejection(() => checkRequest(claimRequest("a", { weight: 5, limit: 4 })))).toBe(
      "weight must be a whole number from 1 to 4, not 5.",
    );
  });

  test.each([
    [undefined, "undefined"],
    ["false", '"false"'],
    [0, "0"],
  ])("validation: wait may not be %o", (value, shown) => {
    expect(rejection(() => requestField("wait")(value))).toBe(`wait must be true or false, not ${shown}.`);
  });

  test.each([
    ["key", "", "key must be 1 to 512 bytes"],
    ["id", "", "id must be 1 to 128 bytes"],
    ["priority", -1, "priority must be a whole number from 0 to 65535, not -1."],
    ["ttlMs", 9, "ttlMs must be a whole number from 10 to 86400000, not 9."],
    ["info", 1, "info must be a string, not 1."],
    ["application", 1, "application must be a string, not 1."],
  ] as const)("validation: a request with a bad %s is rejected", (name, value, message) => {
    expect(rejection(() => requestField(name)(value))).toContain(message);
  });
});

suite("validation: references and queries", () => {
  test("validation: a reference may leave out its token and ttl", () => {
    expect(() => checkRenewRef({ key: "k", id: "a" })).not.toThrow();
    expect(() => checkRenewRef({ key: "k", id: "a", token: "t", ttlMs: 10 })).not.toThrow();
  });

  test.each([
    [{ key: "" }, "key must be 1 to 512 bytes"],
    [{ id: "x".repeat(129) }, "id must be 1 to 128 bytes of UTF-8, not 129"],
    [{ token: "" }, "token must be 1 to 128 bytes"],
    [{ token: null }, "token must be a string, not null."],
    [{ ttlMs: 9 }, "ttlMs must be a whole number from 10 to 86400000, not 9."],
  ])("validation: a reference with %o is rejected", (part, message) => {
    expect(rejection(() => checkRenewRef(untyped({ key: "k", id: "a", ...part })))).toContain(message);
  });

  test("validation: a query names a sound key or prefix", () => {
    expect(() => checkQuery({ prefix: "", limit: 1, maxClaims: 0 })).not.toThrow();
    expect(rejection(() => checkQuery({ key: "", maxClaims: 1 }))).toContain("key must be 1 to 512 bytes");
    expect(rejection(() => checkQuery({ prefix: "\n", limit: 1, maxClaims: 1 }))).toContain("prefix must be");
  });
});

suite("validation: options", () => {
  test("validation: a ttl is named as its option is", () => {
    expect(rejection(() => checkTtl(9, "leaseMs"))).toContain("leaseMs must be");
  });

  test("validation: an integer is checked against the range it is given", () => {
    expect(checkInteger("n", -3, -3, 3)).toBe(-3);
    expect(rejection(() => checkInteger("n", -4, -3, 3))).toBe(
      "n must be a whole number from -3 to 3, not -4.",
    );
  });

  test("validation: a duration is 0 or more, and may be without end", () => {
    for (const value of [0, -0, 0.5, 1e12, Number.POSITIVE_INFINITY]) {
      expect(checkDuration("waitMs", value)).toBe(value);
    }
  });

  test.each([
    [-1, "-1"],
    [Number.NaN, "NaN"],
    [Number.NEGATIVE_INFINITY, "-Infinity"],
    ["5", '"5"'],
    [5n, "5"],
    [null, "null"],
    [undefined, "undefined"],
  ])("validation: a duration may not be %o", (value, shown) => {
    expect(rejection(() => checkDuration("waitMs", untyped(value)))).toBe(
      `waitMs must be 0 or more milliseconds (Infinity for no end), not ${shown}.`,
    );
  });

  test("validation: a choice is one of its words", () => {
    expect(checkChoice("mode", "b", ["a", "b"])).toBe("b");
    expect(rejection(() => checkChoice("mode", "c", ["a", "b"]))).toBe(
      'mode must be one of "a", "b", not "c".',
    );
    expect(rejection(() => checkChoice("mode", untyped(1), ["a", "b"]))).toContain("not 1.");
  });

  test("validation: a boolean is true or false and nothing like it", () => {
    expect(checkBoolean("renew", true)).toBe(true);
    expect(checkBoolean("renew", false)).toBe(false);
    expect(rejection(() => checkBoolean("renew", untyped(1)))).toBe("renew must be true or false, not 1.");
  });

  test("validation: values are shown whole up to 40 characters and cut beyond", () => {
    const shownOf = (value: string) => rejection(() => checkBoolean("b", untyped(value)));
    expect(shownOf("x".repeat(40))).toContain(`not "${"x".repeat(40)}".`);
    expect(shownOf("x".repeat(41))).toContain(`not "${"x".repeat(40)}…".`);
  });

  test("validation: an error may name the key it is about", () => {
    expect(invalid("No.", "k")).toMatchObject({ code: "INVALID_ARGUMENT", message: "No.", key: "k" });
    expect(invalid("No.").key).toBeUndefined();
  });

  test("validation: the documented bounds do not change by accident", () => {
    expect(bounds).toEqual({
      keyBytes: 512,
      idBytes: 128,
      infoBytes: 1_024,
      applicationBytes: 256,
      cursorBytes: 1_024,
      ownerBytes: 256,
      minTtlMs: 10,
      maxTtlMs: 86_400_000,
      maxPriority: 65_535,
      maxPermits: 1_000_000_000,
      defaultMaxWaiters: 10_000,
      maxPageKeys: 1_000,
      maxShownClaims: 10_000,
    });
  });
});

// What a client asks for has been checked already, and is believed. A copy of it is anybody's.
test("validation: a store in between can change a request only into one that is checked", async () => {
  const store = memoryStore();
  const { name, durability, counts } = store;
  const locks = createLocks({
    name,
    durability,
    counts,
    acquire: (request) => store.acquire({ ...request, key: `${request.key}\n` }),
    renew: (refs) => store.renew(refs),
    release: (refs) => store.release(refs),
    look: (query) => store.look(query),
    onGrant: (owner, listener) => store.onGrant(owner, listener),
    close: () => store.close(),
  });
  await expect(locks.mutex("a").acquire()).rejects.toThrow("key must be well-formed text");
  await locks.close();
});
