import { Socket } from "node:net";
import { StoreUnavailableError } from "holdfast";
import { describe, expect, test } from "vitest";
import { classesOf, isMistake, storeError } from "../../src/store/store-errors.ts";

class DriverError extends Error {}
class TimeoutError extends DriverError {
  override name = "Timeout";
}
class WrongCall extends TypeError {}

describe("errors of drivers", () => {
  test("an error is known by its name, its class and those above it, the nearest first", () => {
    expect(classesOf(new TimeoutError())).toEqual([
      "Timeout",
      "TimeoutError",
      "DriverError",
      "Error",
      "Object",
    ]);
    for (const other of [undefined, null, "text", {}, Object.create(null)])
      expect(classesOf(other)).toEqual([]);
  });

  /** Node makes its own with classes of its own. */
  function codedError(): unknown {
    try {
      new Socket().connect(65_536);
    } catch (error) {
      return error;
    }
    return undefined;
  }

  test("mistakes in a program are told apart from trouble on the way, also below their class", () => {
    const wrong = [
      new TypeError(),
      new RangeError(),
      new ReferenceError(),
      new SyntaxError(),
      new WrongCall(),
    ];
    for (const error of [...wrong, codedError()]) expect(isMistake(error)).toBe(true);
    const reset = Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });
    for (const error of [reset, new TimeoutError(), new AggregateError([]), "text", undefined]) {
      expect(isMistake(error)).toBe(false);
    }
  });

  test("an outage is of the class that people know it by", () => {
    const cause = new DriverError();
    const outage = storeError("STORE_UNAVAILABLE", "It is away.", { cause });
    expect(outage).toBeInstanceOf(StoreUnavailableError);
    expect(outage).toMatchObject({
      code: "STORE_UNAVAILABLE",
      retryable: true,
      message: "It is away.",
      cause,
    });
    const failure = storeError("UNAUTHORIZED", "It refuses.", { key: "key" });
    expect(failure).not.toBeInstanceOf(StoreUnavailableError);
    expect(failure).toMatchObject({ code: "UNAUTHORIZED", retryable: false, key: "key" });
  });
});
