import { describe, expect, test, vi } from "vitest";
import { canMount } from "./mounts.ts";

const attempt = () => {
  throw new Error("mount: permission denied");
};

describe("file: tests that need a disk of their own", () => {
  test.each([
    { isRoot: false, isCi: true, because: "only root can mount a disk" },
    { isRoot: true, isCi: false, because: "mounting a disk is not allowed here" },
  ])("are skipped loudly: $because", ({ because, ...where }) => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    expect(canMount("the tests of a full disk", { attempt, ...where })).toBe(false);
    expect(warn).toHaveBeenCalledWith(
      expect.stringContaining(`SKIPPED: the tests of a full disk, because ${because}.`),
    );
    warn.mockRestore();
  });

  test("are not skipped by root in continuous integration", () => {
    expect(() => canMount("the tests of a full disk", { attempt, isRoot: true, isCi: true })).toThrow(
      "permission denied",
    );
  });
});
