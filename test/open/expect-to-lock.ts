import { createLocks } from "holdfast";
import { openStore } from "holdfast/open";
import { expect } from "vitest";

/** Takes a lock and gives it back, twice with clients of their own: the second finds the tables of the first. */
export async function expectToLock(url: string, name: string): Promise<void> {
  const fences: bigint[] = [];
  for (let turn = 0; turn < 2; turn++) {
    const store = await openStore(url);
    expect(store.name).toBe(name);
    const locks = createLocks(store);
    const lease = await locks.mutex("opened").acquire();
    fences.push(lease.fence);
    expect(await lease.release()).toBe(true);
    await locks.close();
    // A second close does nothing.
    await store.close();
  }
  expect(fences[1]).toBeGreaterThan(fences[0]!);
}
