/**
 * `lmdb` counts commits in memory that all processes share, and a process that opens the file sets that count to what it read a
 * moment before. So the count may be behind: docs/decisions/0011-file-store.md.
 */
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import * as lmdb from "lmdb";
import { describe, expect, onTestFinished, test } from "vitest";
import { openFolder } from "../../../src/stores/file/open-folder.js";
import type { ReadReply } from "../../../src/stores/file/protocol.ts";
import { answer } from "../../../src/stores/file/requests.js";
import { testFolder } from "./folders.ts";
import { letter, reading } from "./letters.ts";
import { livePath } from "./raw-files.ts";

/** Where the file for the locks of LMDB has the count. */
const COUNT_AT = 8;

/** Puts the count back by one, as a process does that read it before the latest commit. */
function putBack(folder: string): void {
  const descriptor = openSync(`${livePath(folder)}-lock`, "r+");
  const count = Buffer.alloc(8);
  readSync(descriptor, count, 0, 8, COUNT_AT);
  count.writeBigUInt64LE(count.readBigUInt64LE() - 1n);
  writeSync(descriptor, count, 0, 8, COUNT_AT);
  closeSync(descriptor);
}

describe("file: a count of commits that another process has put back", () => {
  test("is noticed before a commit would undo the latest one, and put right when the file is opened anew", async () => {
    const folder = testFolder();
    let files = await openFolder(lmdb, folder);
    onTestFinished(() => files.close());
    const write = (number: number, key: string) =>
      files.transact(() => answer(files, letter(number, [{ key, text: "held" }]).request));
    const textOf = (key: string) =>
      (files.transact(() => answer(files, reading(0, [key]).request)) as ReadReply).rows[0]?.text;
    write(1, "first");
    write(2, "second");
    putBack(folder);
    expect(() => write(3, "third")).toThrow(expect.objectContaining({ code: "STALE_BASE" }));
    expect(() => files.mend()).toThrow(expect.objectContaining({ code: "FLUSH_FAILED" }));
    await files.close();
    files = await openFolder(lmdb, folder);
    expect([textOf("second"), textOf("third")]).toEqual(["held", undefined]);
    write(4, "third");
    expect([textOf("first"), textOf("second"), textOf("third")]).toEqual(["held", "held", "held"]);
  });

  test("is nothing that a lock notices", async () => {
    const folder = testFolder();
    const locks = createLocks(fileStore(folder));
    const held = await locks.mutex("held").acquire();
    putBack(folder);
    const other = await locks.mutex("other").acquire();
    expect(await locks.mutex("held").tryAcquire()).toBeNull();
    putBack(folder);
    expect(await held.release()).toBe(true);
    await other.release();
    await locks.close();
  });
});
