/** The file of a folder: its transactions, its flushes, and the faults of `lmdb` that the store works around. */
import { closeSync, cpSync, openSync, readdirSync, readSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import * as lmdb from "lmdb";
import { describe, expect, onTestFinished, test } from "vitest";
import { Database } from "../../../src/stores/file/database.ts";
import { fileDriver } from "../../../src/stores/file/driver.ts";
import type { ReadReply, SwapReply } from "../../../src/stores/file/protocol.ts";
import { answer } from "../../../src/stores/file/statements.ts";
import { testFolder } from "./folders.ts";
import { holderOf } from "./holder-of.ts";
import { databasePath, rowCounts, transactions } from "./raw-files.ts";

const change = (key: string, keepUntilMs: number, more: { expected?: number; text?: string } = {}) =>
  ({
    key,
    expected: more.expected,
    text: more.text ?? "{}",
    idle: true,
    keepUntilMs,
    dropped: [],
    wakes: [],
  }) as const;
const always = { earliestMs: 0, latestMs: Number.MAX_SAFE_INTEGER };

describe("file: transactions", () => {
  test("an acquire and a release are one transaction each, and those of many keys at most two", async () => {
    const folder = testFolder();
    const locks = createLocks(fileStore(folder));
    await locks.mutex("warm").run(() => {});
    const before = await transactions(folder);
    const lease = await locks.mutex("one").acquire();
    expect(await transactions(folder)).toBe(before + 1);
    await lease.release();
    expect(await transactions(folder)).toBe(before + 2);

    const keys = Array.from({ length: 100 }, (_, index) => locks.mutex(`many:${index}`));
    const leases = await Promise.all(keys.map((mutex) => mutex.acquire()));
    const acquired = await transactions(folder);
    expect(acquired - before - 2).toBeLessThanOrEqual(2);
    await Promise.all(leases.map((each) => each.release()));
    expect((await transactions(folder)) - acquired).toBeLessThanOrEqual(2);
    await locks.close();
  });

  test("an answer that changes nothing writes nothing", async () => {
    const folder = testFolder();
    const [first, second] = [createLocks(fileStore(folder)), createLocks(fileStore(folder))];
    const lease = await first.mutex("key", { ttlMs: 60_000 }).acquire();
    const before = await transactions(folder);
    expect(await second.mutex("key").tryAcquire()).toBeNull();
    expect(await transactions(folder)).toBe(before);
    await lease.release();
    await Promise.all([first.close(), second.close()]);
  });

  test("LMDB flushes every commit before it returns", () => {
    const options: lmdb.RootDatabaseOptionsWithPath[] = [];
    const open = ((each: lmdb.RootDatabaseOptionsWithPath) => {
      options.push(each);
      return lmdb.open(each);
    }) as typeof lmdb.open;
    const database = Database.open({ ...lmdb, open }, databasePath(testFolder()));
    onTestFinished(() => database.close());
    // Its defaults are to flush, and to do so after the commit has returned.
    expect(options).toHaveLength(1);
    expect(options[0]).toMatchObject({ overlappingSync: false });
    for (const name of ["noSync", "noMetaSync", "mapAsync", "useWritemap"]) {
      expect(options[0]).not.toHaveProperty(name);
    }
  });

  test("records that have ended are removed in batches, and records in use stay", async () => {
    const folder = testFolder();
    const driver = fileDriver(folder);
    const old = Array.from({ length: 250 }, (_, index) => change(`old:${index}`, 1));
    const { nowMs, results } = await driver.swap({ changes: [...old, change("used", 1)], ...always });
    // This record was used again: the sweep moves its entry in the order of ends.
    const { version } = results.at(-1) as { version: number };
    const used = change("used", Math.ceil(nowMs) + 300_000, { expected: version });
    await driver.swap({ changes: [used], ...always });

    expect(await driver.sweep?.(100)).toBe(100);
    expect(await rowCounts(folder)).toEqual({ records: 151, ends: 151 });
    expect(await driver.sweep?.(1_000)).toBe(150);
    expect(await driver.sweep?.(1_000)).toBe(0);
    expect(await rowCounts(folder)).toEqual({ records: 1, ends: 1 });
    expect((await driver.read(["used"])).records[0]?.text).toBe("{}");
    await driver.close?.();
  });

  test("a file that outgrows its address space keeps growing", async () => {
    const driver = fileDriver(testFolder());
    const text = "x".repeat(1_000_000);
    for (let round = 0; round < 8; round++) {
      const changes = [0, 1, 2, 3].map((nth) => change(`large:${round}:${nth}`, 1e15, { text }));
      const { results } = await driver.swap({ changes, ...always });
      expect(results.map(({ state }) => state)).toEqual(Array(4).fill("swapped"));
    }
    expect((await driver.list("large:", undefined, 1_000)).records).toHaveLength(32);
    await driver.close?.();
  });
});

/** The place of the shared count of commits in LMDB's lock file. */
const COUNT_AT = 8;

/** Lowers the count by one, like a process that opens the file and has read it before the latest commit. */
function lowerCount(folder: string): void {
  const descriptor = openSync(`${databasePath(folder)}-lock`, "r+");
  const count = Buffer.alloc(8);
  readSync(descriptor, count, 0, 8, COUNT_AT);
  count.writeBigUInt64LE(count.readBigUInt64LE() - 1n);
  writeSync(descriptor, count, 0, 8, COUNT_AT);
  closeSync(descriptor);
}

describe("file: a count of commits that another process has lowered", () => {
  test("is noticed before a commit would undo the latest one, and is right when the file is opened again", async () => {
    const folder = testFolder();
    const opened = () => {
      const database = Database.open(lmdb, databasePath(folder));
      database.begin();
      return database;
    };
    let database = opened();
    onTestFinished(() => database.close());
    const write = (key: string) => {
      const row = { keys: [key], expected: [0], texts: ["held"], keepUntilMs: [1e15], idle: [false] };
      const message = { number: 1, request: { verb: "swap", ...row, ...always } } as const;
      return database.transact(() => answer(database, message)).reply as SwapReply;
    };
    const textOf = (key: string) => {
      const message = { number: 1, request: { verb: "read", keys: [key] } } as const;
      return (database.transact(() => answer(database, message)).reply as ReadReply).rows[0]?.text;
    };
    write("first");
    write("second");
    lowerCount(folder);
    expect(() => write("third")).toThrow(expect.objectContaining({ code: "STALE" }));
    await database.close();
    database = opened();
    expect(["first", "second", "third"].map(textOf)).toEqual(["held", "held", undefined]);
    write("third");
    expect(["first", "second", "third"].map(textOf)).toEqual(["held", "held", "held"]);
  });

  test("has no effect on locks", async () => {
    const folder = testFolder();
    const locks = createLocks(fileStore(folder));
    const held = await locks.mutex("held").acquire();
    lowerCount(folder);
    const other = await locks.mutex("other").acquire();
    expect(await locks.mutex("held").tryAcquire()).toBeNull();
    lowerCount(folder);
    expect(await held.release()).toBe(true);
    await other.release();
    await locks.close();
  });
});

describe("file: a folder that comes back with less than it had", { timeout: 60_000 }, () => {
  // (1) P is granted a key, and knows the version of its record. (2) The folder is removed. (3) Q makes it again, and is granted the key. With the
  // same version, P's release would remove Q's claim.
  test("has no version from before it was removed", async (context) => {
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

  // (1) P releases a key, and knows the version of that. (2) An older copy of the folder takes its place. (3) The claim in the copy ends, and Q is granted the
  // key. With the same version, P would overwrite Q's claim.
  test("has no version that the copy lacks", async (context) => {
    const [folder, copy] = [testFolder(context), testFolder(context)];
    const locks = createLocks(fileStore(folder));
    const lease = await locks.mutex("key", { ttlMs: 1_000 }).acquire();
    cpSync(databasePath(folder), databasePath(copy));
    await lease.release();
    for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
    cpSync(databasePath(copy), databasePath(folder));
    await sleep(1_100);
    await holderOf(context, folder, "key");
    expect(await locks.mutex("key").tryAcquire()).toBeNull();
    await locks.close();
  });
});
