import { afterEach, expect, test, vi } from "vitest";
import { canRun, findProgram } from "./program.ts";

const missing = () => findProgram({ name: "holdfast-has-no-such-program" });

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

test("tests against an engine that is missing are skipped loudly", () => {
  vi.stubEnv("CI", "");
  const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
  expect(canRun("Nothing", missing)).toBe(false);
  expect(warn).toHaveBeenCalledWith(expect.stringContaining("SKIPPED: all tests against Nothing"));
});

test("in continuous integration a missing engine is a failure", () => {
  vi.stubEnv("CI", "true");
  expect(() => canRun("Nothing", missing)).toThrow("holdfast-has-no-such-program is not installed");
});

test("a program is looked for in further folders, and told once with its version", () => {
  const log = vi.spyOn(console, "log").mockImplementation(() => {});
  const folders = () => ["/nowhere", process.execPath.replace(/\/[^/]+$/, "")];
  vi.stubEnv("PATH", "/nowhere");
  const name = process.execPath.replace(/.*\//, "");
  expect([findProgram({ name, folders }), findProgram({ name, folders })]).toEqual([
    process.execPath,
    process.execPath,
  ]);
  expect(log.mock.calls).toEqual([[`Tests run against ${name}: ${process.versions.node}`]]);
});
