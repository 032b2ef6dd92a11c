import type { SwapBatch } from "./driver.ts";

/** For so long a lock may stay taken because a crash has lost that it was given back. */
const FORGETTABLE_MS = 60_000;

/**
 * From when on, by the server's clock, a crash may lose the batch after it was confirmed: a minute before the last of what it gives
 * back would end by itself. Such a commit need not wait for the disk, where what comes later cannot be kept without it. Undefined
 * where the batch does anything else.
 */
export function forgettableFromMs({ changes }: SwapBatch): number | undefined {
  let lastEndMs = Number.NEGATIVE_INFINITY;
  for (const { endsAnywayMs } of changes) {
    if (endsAnywayMs === undefined) return undefined;
    lastEndMs = Math.max(lastEndMs, endsAnywayMs);
  }
  return lastEndMs - FORGETTABLE_MS;
}
