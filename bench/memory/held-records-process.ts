/** A process whose store has many keys held, as a server's has, and that measures cycles on other keys of that store. */
import { type ClaimRequest, memoryStore } from "holdfast";
import { offer } from "../child.ts";
import { liveHeapBytes, timed } from "../rounds.ts";

const store = memoryStore();
let held = 0;
let fresh = 0;

const heldRecords = {
  /** Asks until that many keys are held. Resolves to the bytes that each takes in the store. */
  async hold(count: number): Promise<number> {
    const beforeBytes = await liveHeapBytes();
    const before = held;
    for (; held < count; held++) await store.acquire(requestFor(`held:${held}`));
    return ((await liveHeapBytes()) - beforeBytes) / (count - before);
  },
  /** Cycles on one key. Resolves to nanoseconds a cycle. */
  cycleFixed: (cycles: number) => timed(cycles, () => cycle(cycles, () => "fixed")),
  /** Cycles on a new key each time. Resolves to nanoseconds a cycle. */
  cycleFresh: (cycles: number) => timed(cycles, () => cycle(cycles, () => `fresh:${fresh++}`)),
};

export type HeldRecords = typeof heldRecords;

offer(heldRecords);

async function cycle(cycles: number, nextKey: () => string): Promise<void> {
  for (let count = 0; count < cycles; count++) {
    const request = requestFor(nextKey());
    await store.acquire(request);
    await store.release([request]);
  }
}

function requestFor(key: string): ClaimRequest {
  const terms = { weight: 1, limit: 1, priority: 0, ttlMs: 86_400_000, wait: true };
  return { key, id: "claim", token: "token", ...terms, owner: "bench", info: "", application: "" };
}
