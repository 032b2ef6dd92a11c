/** What each error of etcd and of its client comes to. */
import * as etcd3 from "etcd3";
import { HoldfastError } from "holdfast";
import { describe, expect, test } from "vitest";
import {
  classesByCode,
  failures,
  isOfClass,
  mapError,
  unauthorized,
  unavailable,
} from "../../../src/stores/etcd/errors.ts";

/** Classes that the client's own dependency has, and not the client. */
const ofPolicies = [
  "BrokenCircuitError",
  "IsolatedCircuitError",
  "BulkheadRejectedError",
  "TaskCancelledError",
];

const tables = [
  ["STORE_UNAVAILABLE", unavailable],
  ["UNAUTHORIZED", unauthorized],
  ["STORE_FAILURE", failures],
] as const;

/** An error as the client makes it. */
function errorOf(name: string): Error {
  const known = (etcd3 as unknown as Record<string, new (message: string) => Error>)[name];
  if (known !== undefined) return new known("as planned");
  expect(ofPolicies).toContain(name);
  return new ({ [name]: class extends Error {} }[name] as typeof Error)("as planned");
}

describe("etcd: errors", () => {
  const rows = tables.flatMap(([code, table]) =>
    Object.entries(table).map(([name, text]) => ({ code, name, text })),
  );

  test.each(rows)("$name is $code, and says what to do", ({ code, name, text }) => {
    const cause = errorOf(name);
    const error = mapError(cause);
    expect(error).toMatchObject({ code, cause, retryable: code === "STORE_UNAVAILABLE" });
    expect(error.message).toContain(text);
    // What it is, and then what to do.
    expect(text).toMatch(/^[A-Z].{10,}[.:] \S.{5,}\.$|\?$/s);
  });

  test("no class of the client is left out", () => {
    const known = rows.map(({ name }) => name);
    // What is asked of roles, elections and software transactions, and not here.
    const elsewhere = /Role|UserExists|LockFailed|NotCampaigning|STMConflict/;
    const classes = Object.entries(etcd3)
      .filter(([, value]) => typeof value === "function" && value.prototype instanceof Error)
      .map(([name]) => name);
    expect(classes.length).toBeGreaterThan(20);
    expect(classes.filter((name) => !known.includes(name) && !elsewhere.test(name))).toEqual([]);
  });

  test.each(Object.entries(classesByCode))("the code %s of a stream is the class %s", (code, name) => {
    const told = Object.assign(new Error("as planned"), { code: Number(code) });
    expect(isOfClass(told, name)).toBe(true);
    expect(mapError(told).code).toBe(mapError(errorOf(name)).code);
    const cast = etcd3.castGrpcError(Object.assign(new Error("as planned"), { code: Number(code) }));
    expect(cast.constructor.name).toBe(name);
  });

  test("what the client marks as passing is an outage, also under another name", () => {
    const renamed = Object.assign(new Error("as planned"), { [etcd3.RecoverableError]: true });
    expect(mapError(renamed).code).toBe("STORE_UNAVAILABLE");
  });

  test("a mistake in a program is none, and errors of Holdfast stay as they are", () => {
    expect(mapError(new TypeError("as planned")).code).toBe("STORE_FAILURE");
    expect(mapError("as planned").code).toBe("STORE_FAILURE");
    const own = new HoldfastError("UNSUPPORTED", "as planned");
    expect(mapError(own)).toBe(own);
  });
});
