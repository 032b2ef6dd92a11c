/** Folders that come back with less than they had, while somebody lives who knows it. */
import { cpSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, test } from "vitest";
import { testFolder } from "./folders.ts";
import { holderOf } from "./holder-of.ts";

describe("file: a folder that others have made anew", { timeout: 60_000 }, () => {
  // (1) P is granted, so it knows the version of the record. (2) The folder is removed. (3) Q makes it anew, and is granted the same key: were it
  // the same version, P would swap what it has never seen, be it with its release or its next claim.
  test("has no version that was there before", async (context) => {
    const folder = join(testFolder(context), "locks");
    const locks = createLocks(fileStore(folder));
    const lease = await locks.mutex("key").acquire();
    rmSync(folder, { recursive: true });
    const { said } = await holderOf(context, folder, "key");
    expect(said).toMatch(/ true$/m);
    expect(await lease.release()).toBe(false);
    expect(await locks.mutex("key").tryAcquire()).toBeNull();
    await locks.close();
  });

  // (1) P gives a lock back, which is answered before it is on the disk. (2) The disk goes, and is back with what it had: the grant. (3) That
  // ends by its ttl, and Q is granted. (4) P finds the folder anew, and knows the record by the version of its release.
  test("has no version that the disk has lost", async (context) => {
    const [folder, disk] = [testFolder(context), testFolder(context)];
    const names = ["locks.mdb", "log-0", "log-1"];
    const locks = createLocks(fileStore(folder));
    const lease = await locks.mutex("key", { ttlMs: 1_000 }).acquire();
    for (const name of names) cpSync(join(folder, name), join(disk, name));
    await lease.release();
    for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
    for (const name of names) cpSync(join(disk, name), join(folder, name));
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    await holderOf(context, folder, "key");
    expect(await locks.mutex("key").tryAcquire()).toBeNull();
    await locks.close();
  });
});
