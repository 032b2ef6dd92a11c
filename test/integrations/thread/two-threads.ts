/**
 * A client and its second heartbeat in time that the test owns. Each thread has a clock of its own that shows the same time;
 * blocking the first one lets time pass while only the second one, the store and other clients run.
 *
 * All of it is the real code, but for the thread itself and the messages between the two.
 */
import {
  createLocks,
  type HeartbeatThread,
  type HoldfastWarning,
  type Locks,
  memoryStore,
  type Store,
} from "holdfast";
import { type FaultPlan, faultyStore, ManualClock } from "holdfast/testing";
import { Kept } from "../../../src/integrations/thread/kept.ts";
import type { News } from "../../../src/integrations/thread/protocol.ts";
import { Standby } from "../../../src/integrations/thread/standby.ts";

export const TTL_MS = 3_000;

export interface TwoThreadsOptions {
  readonly maxBlockedMs?: number;
  /** How fine time goes on. */
  readonly stepMs?: number;
  /** Whether the second thread was told of another store than the one that the client uses. */
  readonly wrongStore?: boolean;
}

export class TwoThreads {
  /** The application's thread. */
  readonly first = new ManualClock();
  /** The heartbeat's thread, the store, and everybody else. */
  readonly second = new ManualClock();
  readonly backend = memoryStore({ clock: this.second });
  readonly warnings: HoldfastWarning[] = [];
  readonly news: News[] = [];
  /** What becomes of the calls of each thread. */
  firstFaults: FaultPlan = () => undefined;
  secondFaults: FaultPlan = () => undefined;
  /** How long an order takes to the second thread. */
  orderMs = 0;
  /** Leases that the second thread has renewed. */
  renewals = 0;
  readonly locks: Locks;
  readonly #stepMs: number;
  readonly #maxBlockedMs: number;
  readonly #secondStore: Store;
  #standby: Standby | undefined;
  #number = 0;

  constructor({ maxBlockedMs = 60_000, stepMs = 5, wrongStore = false }: TwoThreadsOptions = {}) {
    this.#secondStore = wrongStore ? memoryStore({ clock: this.second }) : this.backend;
    this.#stepMs = stepMs;
    this.#maxBlockedMs = maxBlockedMs;
    const store = faultyStore(this.backend, (call) => this.firstFaults(call), { clock: this.first });
    const onWarning = (warning: HoldfastWarning) => this.warnings.push(warning);
    this.locks = createLocks(store, {
      clock: this.first,
      closeStore: false,
      onWarning,
      thread: this.#thread(),
    });
  }

  /** Another client, which is never blocked. */
  rival(): Locks {
    return createLocks(this.backend, { clock: this.second, closeStore: false, onWarning: () => {} });
  }

  /** Lets time pass for everybody. */
  async advance(byMs: number): Promise<void> {
    await this.#pass(byMs, (stepMs) => this.first.advance(stepMs));
  }

  /** Lets time pass while the event loop of the application stands still. What runs then is `body`, now and then. */
  async block(byMs: number, body: () => void = () => {}): Promise<void> {
    await this.#pass(byMs, async (stepMs) => {
      this.first.block(stepMs);
      body();
    });
  }

  /** The second thread dies, and nobody starts another one. */
  kill(): void {
    this.#standby?.close();
    this.#standby = undefined;
  }

  async #pass(byMs: number, stepFirst: (stepMs: number) => Promise<void>): Promise<void> {
    for (let leftMs = byMs; leftMs > 0; leftMs -= this.#stepMs) {
      const stepMs = Math.min(leftMs, this.#stepMs);
      await this.second.advance(stepMs);
      await stepFirst(stepMs);
    }
  }

  #thread(): HeartbeatThread {
    let lifeMs = this.first.monotonicMs();
    const showLife = () => {
      lifeMs = this.first.monotonicMs();
      this.first.setTimer(250, showLife);
    };
    const kept = new Map<number, Kept>();
    return {
      start: ({ clockDrift, requestTimeoutMs }) => {
        showLife();
        const store = faultyStore(this.#secondStore, (call) => this.#ofSecond(call), { clock: this.second });
        this.#standby = new Standby({
          ...{ store, clock: this.second, clockDrift, requestTimeoutMs, maxBlockedMs: this.#maxBlockedMs },
          lifeMs: () => lifeMs,
          tell: (news) => {
            this.news.push(news);
            // Heard of when the event loop turns.
            this.first.setTimer(0, () => {
              if (news.type === "lost") kept.get(news.number)?.onLoss();
            });
          },
        });
        return {
          keep: (terms, onLoss) => {
            const number = ++this.#number;
            const lease = new Kept(terms, 0, onLoss, () => {
              kept.delete(number);
              this.#order(() => this.#standby?.drop(number));
            });
            kept.set(number, lease);
            this.#order(() => this.#standby?.keep(lease.order(number)));
            return lease;
          },
          close: async () => this.kill(),
        };
      },
    };
  }

  #ofSecond(call: Parameters<FaultPlan>[0]): ReturnType<FaultPlan> {
    if (call.verb === "renew") this.renewals++;
    return this.secondFaults(call);
  }

  #order(order: () => void): void {
    this.second.setTimer(this.orderMs, order);
  }
}
