/** The work of a process that a test pauses for longer than its ttl: it writes while it holds a lock. */
import { setTimeout as sleep } from "node:timers/promises";
import { createLocks, type Store } from "holdfast";

/** A message to the parent. */
export interface HolderMessage {
  readonly fence?: string;
  readonly wrote?: number;
  readonly lost?: boolean;
}

export async function writeWhileHeld(store: Store, ttlMs: number): Promise<void> {
  const locks = createLocks(store);
  const lease = await locks.mutex("paused", { ttlMs }).acquire();
  tell({ fence: String(lease.fence) });
  // After a pause the process writes once more, unless it knows that the lease is lost.
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
