import { HoldfastError } from "holdfast";
import * as driver7 from "mongodb";
import * as driver6 from "mongodb6";
import { describe, expect, test } from "vitest";
import { driverErrors, mapError, retryableLabels, serverErrors } from "../../../src/stores/mongodb/errors.ts";

const drivers = { "driver 6": driver6, "driver 7": driver7 };

describe.each(Object.entries(drivers))("mongodb: errors of %s", (_, { MongoServerError, ...driver }) => {
  test.each(Object.entries(serverErrors))(
    "%s of the server has the meaning of the table",
    (code, meaning) => {
      const cause = new MongoServerError({ message: "words", code: Number(code) });
      const error = mapError(cause);
      expect(error).toMatchObject({ code: meaning.code, cause });
      expect(error.message).toContain(meaning.what);
      expect(error.message).toContain(code);
      expect(error.retryable).toBe(meaning.code === "STORE_UNAVAILABLE");
    },
  );

  test.each(retryableLabels)("the label %s is an outage, whatever the code", (label) => {
    const cause = new MongoServerError({ message: "words", code: 4_242, errorLabels: [label] });
    // The driver reads the labels of an answer when it receives it.
    if (!cause.hasErrorLabel(label)) cause.addErrorLabel(label);
    expect(mapError(cause)).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test.each(Object.entries(driverErrors))(
    "%s of the driver has the meaning of the table",
    (name, meaning) => {
      const make = (driver as unknown as Record<string, new (...args: unknown[]) => Error>)[name];
      const made = make === undefined ? named(name) : new make(...argumentsOf(name));
      expect(mapError(made)).toMatchObject({ code: meaning.code, cause: made });
    },
  );

  test("a class that is not in the table has the meaning of its parent", () => {
    class MongoNetworkSomethingError extends driver.MongoNetworkTimeoutError {}
    expect(mapError(new MongoNetworkSomethingError("words"))).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test("a server of the wrong version is named, also if the driver only finds no server", () => {
    const reason = new driver.MongoCompatibilityError("words");
    const cause = Object.assign(new Error("words", { cause: reason }), { name: "MongoServerSelectionError" });
    expect(mapError(cause)).toMatchObject({ code: "UNSUPPORTED", cause });
  });

  test("a write that no majority confirmed is an outage, whatever the reason", () => {
    const cause = new driver.MongoWriteConcernError(unconfirmed as never);
    expect(mapError(cause)).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });

  test.each([
    ["an unknown code", new MongoServerError({ message: "words", code: 4_242 })],
    ["no code", new MongoServerError({ message: "words" })],
    ["a mistake in the program", new TypeError("words")],
    ["a wrong use of the driver", new driver.MongoInvalidArgumentError("words")],
    ["something that is no error", "words"],
  ])("%s is a failure that keeps its cause", (_, cause) => {
    expect(mapError(cause)).toMatchObject({ code: "STORE_FAILURE", cause });
  });

  test("an error of Holdfast stays as it is", () => {
    const error = new HoldfastError("UNSUPPORTED", "words");
    expect(mapError(error)).toBe(error);
  });
});

test.each([...Object.entries(serverErrors), ...Object.entries(driverErrors)])(
  "mongodb: what is said of %s ends with what to do, or with who sees to it",
  (_, { what }) => {
    expect(what).toMatch(/^[^:;.]+[:;.] .+\.$/);
  },
);

const unconfirmed = { ok: 1, writeConcernError: { code: 13, errmsg: "words" } };

function argumentsOf(name: string): unknown[] {
  return name === "MongoWriteConcernError" ? [unconfirmed] : ["words", {}];
}

/** Some classes are not exported. */
function named(name: string): Error {
  return Object.assign(new Error("words"), { name });
}
