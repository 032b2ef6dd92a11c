/** A process that holds many leases through one client, and measures cycles on other keys of that client. */
import { createLocks, type Lease } from "holdfast";
import { offer } from "../child.ts";
import { liveHeapBytes, timed } from "../rounds.ts";
import { cycleLeases } from "./contenders.ts";

/** So long that no heartbeat falls into a measurement: those are measured by themselves. */
const TTL_MS = 86_400_000;

const locks = createLocks();
const fixed = locks.mutex("fixed", { ttlMs: TTL_MS });
const held: Lease[] = [];
let fresh = 0;

const heldKeys = {
  /** Acquires until that many leases are held. Resolves to the bytes that each takes, its key included. */
  async hold(count: number): Promise<number> {
    const beforeBytes = await liveHeapBytes();
    const before = held.length;
    while (held.length < count)
      held.push(await locks.mutex(`held:${held.length}`, { ttlMs: TTL_MS }).acquire());
    return ((await liveHeapBytes()) - beforeBytes) / (count - before);
  },
  /** Cycles on one key. Resolves to nanoseconds a cycle. */
  cycleFixed: (cycles: number) => timed(cycles, () => cycleLeases(fixed, cycles)),
  /** Cycles on a new key each time. Resolves to nanoseconds a cycle. */
  cycleFresh: (cycles: number) => timed(cycles, () => cycleFreshKeys(cycles)),
};

export type HeldKeys = typeof heldKeys;

offer(heldKeys);

async function cycleFreshKeys(cycles: number): Promise<void> {
  for (let cycle = 0; cycle < cycles; cycle++) {
    const lease = await locks.mutex(`fresh:${fresh++}`, { ttlMs: TTL_MS }).acquire();
    await lease.release();
  }
}
