import { type ErrorCode, HoldfastError } from "holdfast";
import { DatabaseError } from "pg";
import { describe, expect, test } from "vitest";
import { mapError, meanings, sqlState } from "../../../src/stores/postgres/errors.ts";

/** What a server answers, by SQLSTATE. */
const answers: readonly (readonly [state: string, name: string, code: ErrorCode])[] = [
  ["08000", "connection_exception", "STORE_UNAVAILABLE"],
  ["08006", "connection_failure", "STORE_UNAVAILABLE"],
  ["08P01", "protocol_violation, as a pooler says that it is full", "STORE_UNAVAILABLE"],
  ["25006", "read_only_sql_transaction", "STORE_UNAVAILABLE"],
  ["26000", "invalid_sql_statement_name", "STORE_UNAVAILABLE"],
  ["40001", "serialization_failure", "STORE_UNAVAILABLE"],
  ["40P01", "deadlock_detected", "STORE_UNAVAILABLE"],
  ["53100", "disk_full", "STORE_UNAVAILABLE"],
  ["53200", "out_of_memory", "STORE_UNAVAILABLE"],
  ["53300", "too_many_connections", "STORE_UNAVAILABLE"],
  ["54000", "program_limit_exceeded", "STORE_UNAVAILABLE"],
  ["55P03", "lock_not_available", "STORE_UNAVAILABLE"],
  ["57014", "query_canceled", "STORE_UNAVAILABLE"],
  ["57P01", "admin_shutdown", "STORE_UNAVAILABLE"],
  ["57P02", "crash_shutdown", "STORE_UNAVAILABLE"],
  ["57P03", "cannot_connect_now", "STORE_UNAVAILABLE"],
  ["57P05", "idle_session_timeout", "STORE_UNAVAILABLE"],
  ["58030", "io_error", "STORE_UNAVAILABLE"],
  ["28000", "invalid_authorization_specification", "UNAUTHORIZED"],
  ["28P01", "invalid_password", "UNAUTHORIZED"],
  ["42501", "insufficient_privilege", "UNAUTHORIZED"],
  ["25001", "active_sql_transaction", "STORE_FAILURE"],
  ["25P03", "idle_in_transaction_session_timeout", "STORE_UNAVAILABLE"],
  ["25P04", "transaction_timeout", "STORE_UNAVAILABLE"],
  ["25P02", "in_failed_sql_transaction", "STORE_FAILURE"],
  ["3D000", "invalid_catalog_name", "STORE_FAILURE"],
  ["3F000", "invalid_schema_name", "STORE_FAILURE"],
  ["42703", "undefined_column", "STORE_FAILURE"],
  ["42804", "datatype_mismatch", "STORE_FAILURE"],
  ["42883", "undefined_function", "STORE_FAILURE"],
  ["42P01", "undefined_table", "STORE_FAILURE"],
  ["22021", "character_not_in_repertoire", "STORE_FAILURE"],
  ["XX000", "internal_error", "STORE_FAILURE"],
];

function answer(state: string): DatabaseError {
  return Object.assign(new DatabaseError("in the server's language", 1, "error"), { code: state });
}

describe("postgres: an answer", () => {
  test.each(answers)("%s (%s) is %s", (state, _, code) => {
    const cause = answer(state);
    const error = mapError(cause);
    expect([error.code, error.retryable, error.cause]).toEqual([code, code === "STORE_UNAVAILABLE", cause]);
    expect(error.message).toContain(state);
  });

  test("that has a meaning is tried here, and each says what to do", () => {
    const tried = answers.map(([state]) => (meanings[state] === undefined ? state.slice(0, 2) : state));
    expect(Object.keys(meanings).filter((state) => !tried.includes(state))).toEqual([]);
    // What it is, and then what to do; or what to do at once.
    for (const { what } of Object.values(meanings))
      expect(what).toMatch(/^([A-Z].{10,}[.:] \S.{5,}|(Check|Create) .{10,})\.$/s);
  });

  test("is found inside the error of a query builder", () => {
    const wrapped = new Error("Failed query", { cause: new Error("again", { cause: answer("42501") }) });
    expect(mapError(wrapped)).toMatchObject({ code: "UNAUTHORIZED", cause: wrapped });
  });
});

describe("postgres: an error of the client", () => {
  test.each([
    ["the system refuses", Object.assign(new Error("connect"), { code: "ECONNREFUSED" })],
    ["the other end is gone", Object.assign(new Error("write"), { code: "EPIPE" })],
    ["no address answers", Object.assign(new AggregateError([]), { code: "ETIMEDOUT" })],
    ["pg loses its connection", new Error("Connection terminated unexpectedly")],
    ["a pool is exhausted", new Error("timeout exceeded when trying to connect")],
    ["something that is no error", "closed"],
  ])("is an outage when %s", (_, cause) => {
    expect(sqlState(cause)).toBeUndefined();
    expect(mapError(cause)).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true, cause });
  });

  test("is not an outage when a program is wrong", () => {
    expect(mapError(new TypeError("not a function")).code).toBe("STORE_FAILURE");
  });

  test("is passed on if it is mapped already", () => {
    const error = new HoldfastError("CLOSED", "closed");
    expect(mapError(error)).toBe(error);
  });
});
