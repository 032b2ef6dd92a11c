/** How stores of one folder wake each other. Claims here have so long a ttl that no heartbeat helps within the time of a test. */
import { createLocks } from "holdfast";
import { fileStore } from "holdfast/file";
import { describe, expect, test } from "vitest";
import { testFolder } from "./folders.ts";

const ttlMs = 60_000;

describe("file: waking others", () => {
  test("a store that is closed right after a release still tells who is next", async () => {
    const folder = testFolder();
    const [leaving, staying] = [createLocks(fileStore(folder)), createLocks(fileStore(folder))];
    const lease = await leaving.mutex("key", { ttlMs }).acquire();
    const next = staying.mutex("key", { ttlMs }).acquire();
    await expect.poll(async () => (await staying.inspect("key")).waitingCount).toBe(1);

    await lease.release();
    await leaving.close();

    expect((await next).fence).toBeGreaterThan(lease.fence);
    await staying.close();
  });
});
