import { type ErrorCode, HoldfastError } from "holdfast";
import { createConnection } from "mysql2/promise";
import { describe, expect, test } from "vitest";
import {
  failures,
  mapError,
  serverErrno,
  unauthorized,
  unavailable,
} from "../../../src/stores/mysql/errors.ts";
import { freePort } from "../../engines/engine.ts";

/** As mysql2 makes it of an answer of the server. */
function answer(errno: number): Error {
  return Object.assign(new Error("in words of its own"), { errno, code: "ER_ANY", sqlState: "HY000" });
}

const tables: readonly (readonly [ErrorCode, Readonly<Record<number, string>>])[] = [
  ["STORE_UNAVAILABLE", unavailable],
  ["UNAUTHORIZED", unauthorized],
  ["STORE_FAILURE", failures],
];

describe.each(tables)("mysql: an answer that is %s", (code, table) => {
  test.each(Object.entries(table))("%s says what to do", (number, advice) => {
    const cause = answer(Number(number));
    const error = mapError(cause);
    expect(error).toMatchObject({ code, cause, retryable: code === "STORE_UNAVAILABLE" });
    expect(error.message).toContain(advice);
    // What it is, and then what to do.
    expect(advice).toMatch(/^[A-Z].{10,}[.:;] \S.{5,}\.$/s);
    expect(error.message).toContain(number);
  });

  test("is that alone", () => {
    for (const [other, numbers] of tables) {
      if (other !== code) expect(Object.keys(numbers).filter((number) => number in table)).toEqual([]);
    }
  });
});

/** What an operator meets: these numbers are looked up by name in the manuals of both servers. */
test.each([
  ["ER_CON_COUNT_ERROR", 1040, "STORE_UNAVAILABLE"],
  ["ER_SERVER_SHUTDOWN", 1053, "STORE_UNAVAILABLE"],
  ["ER_TOO_MANY_USER_CONNECTIONS", 1203, "STORE_UNAVAILABLE"],
  ["ER_LOCK_WAIT_TIMEOUT", 1205, "STORE_UNAVAILABLE"],
  ["ER_LOCK_DEADLOCK", 1213, "STORE_UNAVAILABLE"],
  ["ER_OPTION_PREVENTS_STATEMENT", 1290, "STORE_UNAVAILABLE"],
  ["ER_QUERY_INTERRUPTED", 1317, "STORE_UNAVAILABLE"],
  ["ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION", 1792, "STORE_UNAVAILABLE"],
  ["ER_READ_ONLY_MODE", 1836, "STORE_UNAVAILABLE"],
  ["ER_DBACCESS_DENIED_ERROR", 1044, "UNAUTHORIZED"],
  ["ER_ACCESS_DENIED_ERROR", 1045, "UNAUTHORIZED"],
  ["ER_TABLEACCESS_DENIED_ERROR", 1142, "UNAUTHORIZED"],
  ["ER_PROCACCESS_DENIED_ERROR", 1370, "UNAUTHORIZED"],
  ["ER_NO_DB_ERROR", 1046, "STORE_FAILURE"],
  ["ER_NO_SUCH_TABLE", 1146, "STORE_FAILURE"],
  ["ER_SP_DOES_NOT_EXIST", 1305, "STORE_FAILURE"],
  ["ER_DIVISION_BY_ZERO, which nobody foresaw,", 1365, "STORE_FAILURE"],
] as const)("mysql: %s (%i) is %s", (_, errno, code) => {
  expect(mapError(answer(errno)).code).toBe(code);
});

describe("mysql: an error of the client", () => {
  test.each([
    ["the connection is lost", { code: "PROTOCOL_CONNECTION_LOST", fatal: true }],
    ["the system refuses", { code: "ECONNREFUSED", errno: -111 }],
    ["the connection is reset", { code: "ECONNRESET", errno: -104 }],
    ["connecting takes too long", { code: "ETIMEDOUT" }],
    ["the pool is full", {}],
  ])("is an outage when %s", (_, details) => {
    const cause = Object.assign(new Error("in words of its own"), details);
    expect(serverErrno(cause)).toBeUndefined();
    expect(mapError(cause)).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true, cause });
  });

  test.each([
    ["AUTH_SWITCH_PLUGIN_ERROR", "UNAUTHORIZED"],
    ["MYSQL_CLEAR_PASSWORD_NOT_ENABLED", "UNAUTHORIZED"],
    ["HANDSHAKE_NO_SSL_SUPPORT", "STORE_FAILURE"],
    ["POOL_NOEXIST", "STORE_FAILURE"],
  ])("%s is %s, and says what to do", (client, code) => {
    const message = expect.stringMatching(/\. (Change|Set|Add) /);
    const cause = Object.assign(new Error("in words of its own"), { code: client });
    expect(mapError(cause)).toMatchObject({ code, message, cause });
  });

  test("is not an outage when a program is wrong", () => {
    expect(mapError(new TypeError("query is not a function")).code).toBe("STORE_FAILURE");
  });

  test("is passed on if it is mapped already", () => {
    const error = new HoldfastError("CLOSED", "closed");
    expect(mapError(error)).toBe(error);
  });

  test("is an outage as mysql2 reports it, of a port without a server", async () => {
    const refused = await createConnection({ host: "127.0.0.1", port: await freePort() }).catch(mapError);
    expect(refused).toMatchObject({ code: "STORE_UNAVAILABLE" });
  });
});
