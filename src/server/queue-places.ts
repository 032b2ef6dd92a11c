/** Tells calls that wait their place in the queue: with one look at a key and second, however many wait for it. */
import { type Clock, systemClock } from "../platform/index.ts";
import type { LookPage, LookQuery } from "../store/index.ts";
import { Rounds } from "./rounds.ts";
import type { Turns } from "./turns.ts";

/** How often a key is looked at while somebody waits for it. */
const LOOK_MS = 1_000;

/** How many waiters are looked through for places. */
const SHOWN_WAITERS = 1_000;

/** The place, from 1, or 0 if it is too far behind to tell, and how many wait. */
export type TellPlace = (position: number, length: number) => void;

interface Waiter {
  readonly id: string;
  readonly tell: TellPlace;
  told: string;
}

interface Queue {
  readonly waiters: Set<Waiter>;
  dueMs: number;
}

export class QueuePlaces {
  readonly #look: (query: LookQuery) => Promise<LookPage>;
  readonly #turns: Turns;
  readonly #clock: Clock;
  readonly #queues = new Map<string, Queue>();
  readonly #rounds: Rounds;

  constructor(look: (query: LookQuery) => Promise<LookPage>, turns: Turns, clock: Clock = systemClock) {
    this.#look = look;
    this.#turns = turns;
    this.#clock = clock;
    this.#rounds = new Rounds({ clock, work: () => this.#round() });
  }

  /** Tells the place of a claim within a second, and again when it has changed. Returns what ends that. */
  follow(key: string, id: string, tell: TellPlace): () => void {
    const queue = this.#queues.get(key) ?? { waiters: new Set(), dueMs: this.#clock.monotonicMs() };
    this.#queues.set(key, queue);
    const waiter = { id, tell, told: "" };
    queue.waiters.add(waiter);
    // One that is not due yet is looked at in time.
    if (queue.dueMs <= this.#clock.monotonicMs()) this.#rounds.start();
    return () => {
      queue.waiters.delete(waiter);
    };
  }

  async #round(): Promise<number | undefined> {
    let nextMs: number | undefined;
    for (const [key, queue] of this.#queues) {
      const nowMs = this.#clock.monotonicMs();
      if (queue.dueMs <= nowMs) {
        if (queue.waiters.size === 0) {
          this.#queues.delete(key);
          continue;
        }
        queue.dueMs = nowMs + LOOK_MS;
        await this.#tellPlaces(key, queue);
      }
      nextMs = Math.min(nextMs ?? queue.dueMs, queue.dueMs);
    }
    return nextMs;
  }

  async #tellPlaces(key: string, queue: Queue): Promise<void> {
    let page: LookPage;
    try {
      page = await this.#look({ key, maxClaims: SHOWN_WAITERS });
    } catch {
      // The wait itself tells of an outage of the store, if it lasts.
      return;
    }
    const status = page.keys[0];
    const places = new Map(status?.waiting.map(({ id }, index) => [id, index + 1]));
    const length = status?.waitingCount ?? 0;
    const all = places.size === length;
    for (const waiter of queue.waiters) {
      const position = places.get(waiter.id) ?? 0;
      // It was granted, or is gone, which is not for this to tell.
      if (position === 0 && all) continue;
      const told = `${position} ${length}`;
      if (waiter.told === told) continue;
      await this.#turns.take();
      if (!queue.waiters.has(waiter)) continue;
      waiter.told = told;
      waiter.tell(position, length);
    }
  }
}
