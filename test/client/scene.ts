import {
  createLocks,
  type EventHandlers,
  type EventKind,
  type HoldfastEvents,
  type HoldfastWarning,
  type KeyStatus,
  type Locks,
  type LocksOptions,
  memoryStore,
  observe,
  type Store,
  type Unsubscribe,
} from "holdfast";
import { type FaultPlan, faultyStore, ManualClock, type StoreCall } from "holdfast/testing";
import { expect } from "vitest";

/** The ttl of most leases in these tests: a heartbeat every 1,000 ms, repeated after 500 ms without an answer. */
export const TTL_MS = 3_000;

/** Until when an answer proves a lease of that ttl, after its request was sent: less the drift of clocks and a tick. */
export const PROVEN_MS = 2_996;

/** What a promise has come to so far. */
export interface Outcome<T> {
  state: "pending" | "fulfilled" | "rejected";
  value?: T;
  error?: unknown;
  /** When it settled, in milliseconds since the scene began. */
  atMs?: number;
}

/** Which test the clients of scenes belong to. */
const testOf = new Map<string, string | undefined>();

/**
 * Hears the clients of this test's scenes, and nobody else. Leases that earlier tests have dropped, also those of other files in the same
 * process, are told as lost whenever the garbage is collected.
 */
export function observeScenes(handlers: EventHandlers): Unsubscribe {
  const ours = Object.entries(handlers).map(([kind, handle]) => [
    kind,
    (event: HoldfastEvents[EventKind]) => {
      const { owner } = "claim" in event ? event.claim : event;
      if (testOf.has(owner) && testOf.get(owner) === expect.getState().currentTestName)
        handle(event as never);
    },
  ]);
  return observe(Object.fromEntries(ours) as EventHandlers);
}

/** A client in time that the test owns, over a memory store that the test can cut it off from. */
export class Scene {
  readonly clock: ManualClock;
  /** The store itself, which no fault comes in between. */
  readonly backend: Store;
  /** Every call from the client to the store, and every push back, in order. */
  readonly calls: StoreCall[] = [];
  readonly warnings: HoldfastWarning[] = [];
  /** What becomes of the client's calls from now on. */
  faults: FaultPlan = () => undefined;
  readonly locks: Locks;
  readonly #startMs: number;
  readonly #kept: unknown[] = [];

  constructor(
    options: LocksOptions = {},
    clock = new ManualClock(),
    backend: Store = memoryStore({ clock }),
  ) {
    this.clock = clock;
    this.backend = backend;
    this.#startMs = clock.monotonicMs();
    const store = faultyStore(this.backend, (call) => this.#plan(call), { clock: this.clock });
    this.locks = this.#ours(
      createLocks(store, {
        clock: this.clock,
        closeStore: false,
        onWarning: (warning) => this.warnings.push(warning),
        ...options,
      }),
    );
  }

  /** Milliseconds since the scene began. */
  get nowMs(): number {
    return this.clock.monotonicMs() - this.#startMs;
  }

  /** Another client over the same store, with a connection of its own that never fails. */
  rival(options: LocksOptions = {}): Locks {
    return this.#ours(createLocks(this.backend, { clock: this.clock, closeStore: false, ...options }));
  }

  /** Refers to a lease for as long as the scene lasts: one that nothing refers to is given up when garbage is collected. */
  keep<T>(lease: T): T {
    this.#kept.push(lease);
    return lease;
  }

  /** The calls of one verb so far. */
  sent<V extends StoreCall["verb"]>(verb: V): Extract<StoreCall, { verb: V }>[] {
    return this.calls.filter((call): call is Extract<StoreCall, { verb: V }> => call.verb === verb);
  }

  /** What the store knows of a key. */
  async status(key: string): Promise<KeyStatus> {
    const { keys } = await this.backend.look({ key, maxClaims: 100 });
    return keys[0] as KeyStatus;
  }

  /** Starts something whose outcome is looked at while time goes on. */
  begin<T>(promise: Promise<T>): Outcome<T> {
    const outcome: Outcome<T> = { state: "pending" };
    promise.then(
      (value) => Object.assign(outcome, { state: "fulfilled", value, atMs: this.nowMs }),
      (error: unknown) => Object.assign(outcome, { state: "rejected", error, atMs: this.nowMs }),
    );
    return outcome;
  }

  /** From now on nothing reaches the store and nothing comes back. */
  cutOff(): void {
    this.faults = () => ({ lose: "request", hang: true });
  }

  /** From now on every call fails at once. */
  refuseCalls(): void {
    this.faults = () => ({ lose: "request" });
  }

  reconnect(): void {
    this.faults = () => undefined;
  }

  #ours(locks: Locks): Locks {
    testOf.set(locks.owner, expect.getState().currentTestName);
    return locks;
  }

  #plan(call: StoreCall) {
    this.calls.push(call);
    return this.faults(call);
  }
}
