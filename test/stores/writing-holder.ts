/** What a process does that a test stops for longer than its ttl: it holds a lock, and writes as long as it holds it. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Store } from "holdfast";

/** What it tells its parent. */
export interface HolderMessage {
  readonly fence?: string;
  readonly wrote?: number;
  readonly lost?: boolean;
}

export async function writeWhileHeld(store: Store, ttlMs: number): Promise<void> {
  const locks = createLocks(store);
  const lease = await locks.mutex("paused", { ttlMs }).acquire();
  tell({ fence: String(lease.fence) });
  // The first thing that happens after a pause is one more turn of this: a write, unless the lease is known to be lost.
  while (lease.held) {
    tell({ wrote: Date.now() });
    await sleep(5);
  }
  tell({ lost: true });
  await locks.close();
}

function tell(message: HolderMessage): void {
  process.send?.(message);
}
