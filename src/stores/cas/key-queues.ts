/** The queues of the keys that were used lately, each with its cached record. */
import { KeyQueue } from "./key-queue.ts";

/** The share that stays when old queues are removed. */
const STAYING = 0.75;

/** Keeps about `maxQueues` queues, and more only while they have something to do. */
export class KeyQueues {
  readonly #maxQueues: number;
  readonly #byKey = new Map<string, KeyQueue>();
  #removeFrom: number;

  constructor(maxQueues: number) {
    this.#maxQueues = maxQueues;
    this.#removeFrom = maxQueues;
  }

  of(key: string): KeyQueue {
    const found = this.#byKey.get(key);
    if (found !== undefined) {
      found.wasUsed = true;
      return found;
    }
    // Before the new queue is added, as it has nothing to do yet.
    if (this.#byKey.size >= this.#removeFrom) this.#removeUnused();
    const queue = new KeyQueue(key);
    this.#byKey.set(key, queue);
    return queue;
  }

  peek(key: string): KeyQueue | undefined {
    return this.#byKey.get(key);
  }

  values(): Iterable<KeyQueue> {
    return this.#byKey.values();
  }

  clear(): void {
    this.#byKey.clear();
  }

  /**
   * A queue that was used since the last removal is skipped once. Moving each used key to the end of the map would be exact, and slow:
   * docs/decisions/0004-finding-claims-by-id.md has the cost of a Map whose keys come and go.
   */
  #removeUnused(): void {
    const most = Math.floor(STAYING * this.#maxQueues);
    for (let round = 0; round < 2 && this.#byKey.size > most; round++) {
      for (const [key, queue] of this.#byKey) {
        // A conflict's record is for the next attempt. Without it, two keys could displace each other for ever.
        if (!queue.isActive && !queue.wasUsed) this.#byKey.delete(key);
        queue.wasUsed = false;
        if (this.#byKey.size <= most) break;
      }
    }
    this.#removeFrom = Math.max(this.#maxQueues, this.#byKey.size / STAYING);
  }
}
