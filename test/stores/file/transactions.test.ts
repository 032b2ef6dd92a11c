/** What locks cost in transactions, each of which is a write to the disk; and what is cleaned up. */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, test } from "vitest";
import { fileDriver } from "../../../src/stores/file/file-driver.ts";
import { testFolder } from "./folders.ts";
import { rowCounts, transactions } from "./raw-files.ts";

describe("file: transactions", () => {
  test("an acquire and a release are one transaction each, and those of many keys two at the most", async () => {
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

  test("an answer from which nothing follows writes nothing", async () => {
    const folder = testFolder();
    const [first, second] = [createLocks(fileStore(folder)), createLocks(fileStore(folder))];
    const lease = await first.mutex("key", { ttlMs: 60_000 }).acquire();
    const before = await transactions(folder);
    expect(await second.mutex("key").tryAcquire()).toBeNull();
    expect(await transactions(folder)).toBe(before);
    await lease.release();
    await Promise.all([first.close(), second.close()]);
  });

  test("records whose time is up are removed in batches, and those in use stay", async () => {
    const folder = testFolder();
    const driver = fileDriver(folder);
    const { nowMs } = await driver.read([]);
    const change = (key: string, keepUntilMs: number, expected?: bigint) =>
      ({ key, expected, text: "{}", idle: true, keepUntilMs, dropped: [], wakes: [] }) as const;
    const window = { earliestMs: 0, latestMs: Math.ceil(nowMs) + 600_000 };
    const old = Array.from({ length: 250 }, (_, index) => change(`old:${index}`, 1));
    const { results } = await driver.swap({ changes: [...old, change("used", 1)], ...window });
    // This one was used again: its entry in the order of ends is outdated, and is put right.
    const used = results.at(-1) as { version: bigint };
    const laterMs = Math.ceil(nowMs) + 300_000;
    await driver.swap({ changes: [change("used", laterMs, used.version)], ...window });

    expect(await driver.sweep?.(100)).toBe(100);
    expect(await rowCounts(folder)).toMatchObject({ records: 151, ends: 151 });
    expect(await driver.sweep?.(1_000)).toBe(150);
    expect(await driver.sweep?.(1_000)).toBe(0);
    expect(await rowCounts(folder)).toMatchObject({ records: 1, ends: 1 });
    expect((await driver.read(["used"])).records[0]?.text).toBe("{}");
    await driver.close?.();
  });

  test("a file that outgrows its address space goes on growing, also for others that have it open", async () => {
    const folder = testFolder();
    const driver = fileDriver(folder);
    const { nowMs } = await driver.read([]);
    const text = "x".repeat(1_000_000);
    for (let round = 0; round < 8; round++) {
      const changes = Array.from({ length: 4 }, (_, index) => ({
        ...{ key: `large:${round}:${index}`, expected: undefined, text, idle: false },
        ...{ keepUntilMs: Math.ceil(nowMs) + 600_000, dropped: [], wakes: [] },
      }));
      const { results } = await driver.swap({ changes, earliestMs: 0, latestMs: Math.ceil(nowMs) + 600_000 });
      expect(results.map(({ state }) => state)).toEqual(Array(4).fill("swapped"));
    }
    expect((await driver.list("large:", undefined, 1_000)).records).toHaveLength(32);
    await driver.close?.();
  });

  // One that fits only without its mark would keep the log from being put into locks.mdb, for good.
  test("an owner whose name is too long is told so, and is in nobody's way", async () => {
    const driver = fileDriver(testFolder());
    await expect(driver.listen?.("x".repeat(1_900), () => {})).rejects.toMatchObject({
      code: "STORE_FAILURE",
      message: expect.stringContaining("1,899 bytes"),
    });
    const end = await driver.listen?.("x".repeat(1_899), () => {});
    end?.();
    await driver.close?.();
  });
});
