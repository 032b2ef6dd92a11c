import { constants } from "node:os";
import { describe, expect, test } from "vitest";
import { mapFailure, meanings } from "../../../src/stores/file/errors.ts";
import { networkFileSystem } from "../../../src/stores/file/readiness.ts";

const outages = [
  "ENOSPC",
  "EDQUOT",
  "EFBIG",
  "EIO",
  "ENOMEM",
  "EMFILE",
  "ENFILE",
  "ENOLCK",
  "EBUSY",
  "EAGAIN",
];

describe("file: errors", () => {
  test.each(Object.entries(meanings))("%s is reported with a remedy", (name, { code, what }) => {
    const error = mapFailure({ code: name, message: "as the system said" }, "some/folder");
    expect(error.code).toBe(code);
    expect(error.retryable).toBe(code === "STORE_UNAVAILABLE");
    // A lock server tells its clients this message.
    expect(error.message).not.toContain("some/folder");
    expect(error.message).toContain(name);
    expect(error.message).toContain(what);
    // The cause, then the remedy.
    expect(what).toMatch(/^[A-Z].{10,}[.:] \S.{5,}\.$/s);
    expect(error.cause).toMatchObject({ message: "some/folder: as the system said" });
  });

  test.each(outages)("%s is an outage, also by its number", (name) => {
    const code = constants.errno[name as keyof typeof constants.errno];
    expect(mapFailure({ code, message: "" }, "f").code).toBe("STORE_UNAVAILABLE");
    expect(mapFailure({ code, message: "" }, "f").message).toContain(name);
  });

  test.each(["EACCES", "EPERM", "EROFS"])("%s is a lack of rights", (name) => {
    expect(mapFailure({ code: name, message: "" }, "f").code).toBe("UNAUTHORIZED");
  });

  test("anything else is a failure that names its cause", () => {
    expect(mapFailure({ code: "UNKNOWN", message: "the reason" }, "f")).toMatchObject({
      code: "STORE_FAILURE",
      cause: { message: "f: the reason" },
    });
  });

  test("network file systems are known by their numbers, signed or not", () => {
    expect(networkFileSystem(0x6969)).toBe("NFS");
    expect(networkFileSystem(0xff534d42)).toBe("CIFS");
    expect(networkFileSystem(0xff534d42 | 0)).toBe("CIFS");
    // ext4, XFS, tmpfs, overlayfs
    for (const local of [0xef53, 0x58465342, 0x01021994, 0x794c7630]) {
      expect(networkFileSystem(local)).toBeUndefined();
    }
  });
});
