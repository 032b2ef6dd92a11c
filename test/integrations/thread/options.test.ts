import { createLocks, HoldfastError, memoryStore } from "holdfast";
import { ManualClock } from "holdfast/testing";
import { type HeartbeatThreadOptions, heartbeatThread } from "holdfast/thread";
import { describe, expect, test } from "vitest";

describe("heartbeatThread", () => {
  test.each<[string, unknown, RegExp]>([
    ["neither a url nor a module", {}, /exactly one of url and module/],
    ["both", { url: "redis://localhost", module: "/store.js" }, /exactly one/],
    ["a url without a scheme", { url: "localhost" }, /must begin with one of .*redis:/],
    ["memory", { url: "memory:" }, /cannot be a memory: store/],
    ["a folder", { url: "file:./locks" }, /cannot be a file: store/],
    ["a relative module", { module: "./store.js" }, /absolute path.*not ".\/store.js"/],
    ["a module by http", { module: new URL("http://localhost/store.js") }, /must be a file: URL/],
    ["data that cannot be copied", { module: "/store.js", data: { client() {} } }, /cannot be copied/],
    ["too short a maxBlockedMs", { url: "redis://localhost", maxBlockedMs: 999 }, /1000 or more.*not 999/],
    ["no number", { url: "redis://localhost", maxBlockedMs: Number.NaN }, /not NaN/],
    [
      "options of Node as one string",
      { url: "redis://localhost", execArgv: "--import tsx" },
      /list of strings/,
    ],
  ])("refuses %s", (_, options, message) => {
    const make = () => heartbeatThread(options as HeartbeatThreadOptions);
    expect(make).toThrow(message);
    expect(make).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
  });

  test("never shows a password", () => {
    expect(() => heartbeatThread({ url: "http://somebody:secret@localhost" })).toThrow(
      expect.not.stringContaining("secret"),
    );
  });

  test("refuses a client that has a clock of its own", () => {
    const thread = heartbeatThread({ url: "redis://localhost" });
    expect(() => createLocks(memoryStore(), { clock: new ManualClock(), thread })).toThrow(/system clock/);
  });

  test("refuses options that Node does not know when the client is made", () => {
    const thread = heartbeatThread({ url: "redis://localhost", execArgv: ["--no-such-option"] });
    expect(() => createLocks(memoryStore(), { thread })).toThrow(/Check the execArgv/);
    expect(() => createLocks(memoryStore(), { thread })).toThrow(HoldfastError);
  });

  test("is what the option thread of a client takes, and nothing else", () => {
    expect(() => createLocks(memoryStore(), { thread: { url: "redis://localhost" } as never })).toThrow(
      /result of heartbeatThread, from holdfast\/thread/,
    );
  });
});
