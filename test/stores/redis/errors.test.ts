import { type ErrorCode, HoldfastError } from "holdfast";
import { ReplyError } from "ioredis";
import { ReplyError as ReplyError6 } from "ioredis6";
import {
  ClientClosedError,
  ErrorReply,
  SimpleError,
  SocketClosedUnexpectedlyError,
  TimeoutError,
} from "redis";
import { ErrorReply as ErrorReply5, SimpleError as SimpleError5 } from "redis5";
import { describe, expect, test } from "vitest";
import { mapError, replyCode } from "../../../src/stores/redis/errors.ts";

/** What a server answers, in its own words. */
const answers: readonly (readonly [text: string, code: ErrorCode])[] = [
  ["READONLY You can't write against a read only replica.", "STORE_UNAVAILABLE"],
  [
    "READONLY You can't write against a read only replica. script: f00, on @user_script:9.",
    "STORE_UNAVAILABLE",
  ],
  ["MOVED 3999 127.0.0.1:6381", "STORE_UNAVAILABLE"],
  ["ASK 3999 127.0.0.1:6381", "STORE_UNAVAILABLE"],
  ["TRYAGAIN Multiple keys request during rehashing of slot", "STORE_UNAVAILABLE"],
  ["ERR Script attempted to access a non local key in a cluster node", "STORE_UNAVAILABLE"],
  ["CLUSTERDOWN The cluster is down", "STORE_UNAVAILABLE"],
  ["MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "STORE_UNAVAILABLE"],
  ["LOADING Redis is loading the dataset in memory", "STORE_UNAVAILABLE"],
  ["OOM command not allowed when used memory > 'maxmemory'.", "STORE_UNAVAILABLE"],
  ["BUSY Redis is busy running a script.", "STORE_UNAVAILABLE"],
  ["NOREPLICAS Not enough good replicas to write.", "STORE_UNAVAILABLE"],
  ["MISCONF Redis is configured to save RDB snapshots", "STORE_UNAVAILABLE"],
  ["UNBLOCKED force unblock from blocking operation", "STORE_UNAVAILABLE"],
  ["NOSCRIPT No matching script.", "STORE_UNAVAILABLE"],
  ["NOPERM this user has no permissions to run the 'evalsha' command", "UNAUTHORIZED"],
  ["NOAUTH Authentication required.", "UNAUTHORIZED"],
  ["WRONGPASS invalid username-password pair or user is disabled.", "UNAUTHORIZED"],
  ["WRONGTYPE Operation against a key holding the wrong kind of value", "STORE_FAILURE"],
  ["CROSSSLOT Keys in request don't hash to the same slot", "STORE_FAILURE"],
  ["ERR unknown command 'EVALSHA'", "STORE_FAILURE"],
  ["words without a code", "STORE_FAILURE"],
  // As version 6.2 tells what a command in a script answered.
  ["ERR Error running script (call to f_a1): @user_script:3: WRONGTYPE Operation against", "STORE_FAILURE"],
  ["ERR Error running script (call to f_a1): @user_script: 3: -OOM command not allowed", "STORE_UNAVAILABLE"],
  ["ERR Error running script (call to f_a1): @user_script: 3: -READONLY You can't", "STORE_UNAVAILABLE"],
  [
    "ERR Error running script (call to f_a1): @user_script:3: @user_script: 3: Script attempted to access a non local key in",
    "STORE_UNAVAILABLE",
  ],
];

const replies: Readonly<Record<string, new (text: string) => Error>> = {
  "ioredis 5": ReplyError as new (text: string) => Error,
  "ioredis 6": ReplyError6 as new (text: string) => Error,
  "node-redis 5": SimpleError5,
  "node-redis 5, any reply": ErrorReply5,
  "node-redis 6": SimpleError,
  "node-redis 6, any reply": ErrorReply,
};

describe.each(Object.entries(replies))("redis: an answer through %s", (_, Reply) => {
  test.each(answers)("%s", (text, code) => {
    const cause = new Reply(text);
    const error = mapError(cause);
    expect(error.code).toBe(code);
    expect(error.cause).toBe(cause);
  });
});

test("redis: a server that is out of memory is not said to evict keys, because that loses locks", () => {
  const { message } = mapError(new SimpleError("OOM command not allowed when used memory > 'maxmemory'."));
  expect(message).toMatch(/Raise maxmemory.*keep maxmemory-policy noeviction/);
});

describe("redis: an error of the client", () => {
  test.each([
    ["ioredis gives up a command", new Error("Reached the max retries per request limit.")],
    ["ioredis is closed", new Error("Connection is closed.")],
    ["node-redis loses its socket", new SocketClosedUnexpectedlyError()],
    ["node-redis was closed after sending", new ClientClosedError()],
    ["node-redis waits in vain", new TimeoutError()],
    ["the system refuses", Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" })],
    ["something that is no error", "closed"],
  ])("is an outage when %s", (_, cause) => {
    expect(replyCode(cause)).toBeUndefined();
    expect(mapError(cause)).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: true, cause });
  });

  test("is what the last server said, when no server of a cluster could be used", () => {
    const failed = (lastNodeError: Error) =>
      mapError(Object.assign(new Error("Failed to refresh slots cache."), { lastNodeError }));
    const denied = new SimpleError("WRONGPASS invalid username-password pair");
    expect(failed(denied)).toMatchObject({ code: "UNAUTHORIZED", cause: denied });
    expect(failed(new Error("Connection is closed.")).code).toBe("STORE_UNAVAILABLE");
  });

  test("is not an outage when a program is wrong", () => {
    expect(mapError(new TypeError("Invalid argument type")).code).toBe("STORE_FAILURE");
  });

  test("is left alone when it has been told apart before", () => {
    const error = new HoldfastError("CLOSED", "closed");
    expect(mapError(error)).toBe(error);
  });
});
