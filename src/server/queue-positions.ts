/** Sends waiting calls their positions in the queue, with one look per key and second for all its waiters. */
import { type Clock, systemClock } from "../platform/index.ts";
import type { LookPage, LookQuery } from "../store/index.ts";
import { Poller } from "./poller.ts";
import type { Scheduler } from "./scheduler.ts";

const LOOK_MS = 1_000;

/** Waiters behind this position get no position. */
const SHOWN_WAITERS = 1_000;

/** Gets the position, which begins at 1 and is 0 beyond the shown waiters, and the number of waiters. */
export type PositionListener = (position: number, length: number) => void;

interface Waiter {
  readonly id: string;
  readonly listener: PositionListener;
  sent: string;
}

interface Queue {
  readonly waiters: Set<Waiter>;
  dueMs: number;
}

export class QueuePositions {
  readonly #look: (query: LookQuery) => Promise<LookPage>;
  readonly #scheduler: Scheduler;
  readonly #clock: Clock;
  readonly #queues = new Map<string, Queue>();
  readonly #poller: Poller;

  constructor(
    look: (query: LookQuery) => Promise<LookPage>,
    scheduler: Scheduler,
    clock: Clock = systemClock,
  ) {
    this.#look = look;
    this.#scheduler = scheduler;
    this.#clock = clock;
    this.#poller = new Poller(clock, () => this.#poll());
  }

  /** Calls the listener within a second, and after each change. Returns a function that ends that. */
  follow(key: string, id: string, listener: PositionListener): () => void {
    const queue = this.#queues.get(key) ?? { waiters: new Set(), dueMs: this.#clock.monotonicMs() };
    this.#queues.set(key, queue);
    const waiter = { id, listener, sent: "" };
    queue.waiters.add(waiter);
    if (queue.dueMs <= this.#clock.monotonicMs()) this.#poller.start();
    return () => {
      queue.waiters.delete(waiter);
    };
  }

  async #poll(): Promise<number | undefined> {
    let nextMs: number | undefined;
    for (const [key, queue] of this.#queues) {
      const nowMs = this.#clock.monotonicMs();
      if (queue.dueMs <= nowMs) {
        if (queue.waiters.size === 0) {
          this.#queues.delete(key);
          continue;
        }
        queue.dueMs = nowMs + LOOK_MS;
        await this.#send(key, queue);
      }
      nextMs = Math.min(nextMs ?? queue.dueMs, queue.dueMs);
    }
    return nextMs;
  }

  async #send(key: string, queue: Queue): Promise<void> {
    let page: LookPage;
    try {
      page = await this.#look({ key, maxClaims: SHOWN_WAITERS });
    } catch {
      // The acquire of the call reports an outage that lasts.
      return;
    }
    const status = page.keys[0];
    const positions = new Map(status?.waiting.map(({ id }, index) => [id, index + 1]));
    const length = status?.waitingCount ?? 0;
    const showsAll = positions.size === length;
    for (const waiter of queue.waiters) {
      const position = positions.get(waiter.id) ?? 0;
      // The claim was granted, or is gone.
      if (position === 0 && showsAll) continue;
      const sent = `${position} ${length}`;
      if (waiter.sent === sent) continue;
      await this.#scheduler.take();
      if (!queue.waiters.has(waiter)) continue;
      waiter.sent = sent;
      waiter.listener(position, length);
    }
  }
}
