import { createLocks, type HoldfastWarning, type Locks, memoryStore } from "holdfast";
import { type FaultPlan, faultyStore, ManualClock } from "holdfast/testing";

/** A Monday, on the hour. */
export const START_MS = Date.UTC(2030, 0, 7, 12);

/** A client in a process of its own, with a wall clock of its own and a network of its own to the store. */
export class Replica {
  readonly clock: ManualClock;
  readonly locks: Locks;
  readonly warnings: HoldfastWarning[] = [];
  /** What becomes of its calls from now on. */
  faults: FaultPlan = () => undefined;
  dead = false;

  constructor(fleet: Fleet, skewMs: number) {
    this.clock = new ManualClock(fleet.clock.wallMs() + skewMs);
    const store = faultyStore(
      fleet.store,
      (call) => (this.dead ? { lose: "request", hang: true } : this.faults(call)),
      { clock: this.clock },
    );
    this.locks = createLocks(store, {
      clock: this.clock,
      closeStore: false,
      onWarning: (warning) => this.warnings.push(warning),
    });
  }

  /** Ends as a killed process does: its time stands still, and nothing comes from it or reaches it any more. */
  crash(): void {
    this.dead = true;
  }

  /** Every call fails at once. */
  cutOff(): void {
    this.faults = () => ({ lose: "request" });
  }

  reconnect(): void {
    this.faults = () => undefined;
  }

  codes(): string[] {
    return this.warnings.map(({ code }) => code);
  }
}

/** Several replicas over one store, in time that the test owns. Their clocks show different times and go at one rate. */
export class Fleet {
  readonly clock = new ManualClock(START_MS);
  readonly store = memoryStore({ clock: this.clock });
  readonly replicas: Replica[] = [];

  /** A replica whose wall clock is ahead of the store's by so much. */
  add(skewMs = 0): Replica {
    const replica = new Replica(this, skewMs);
    this.replicas.push(replica);
    return replica;
  }

  /** Milliseconds since the fleet began. */
  get nowMs(): number {
    return this.clock.wallMs() - START_MS;
  }

  /** Lets time pass for all that live, a little at a time for one after the other. */
  async advance(byMs: number, stepMs = 50): Promise<void> {
    for (let leftMs = byMs; leftMs > 0; leftMs -= stepMs) {
      const nextMs = Math.min(stepMs, leftMs);
      await this.clock.advance(nextMs);
      for (const replica of this.replicas) if (!replica.dead) await replica.clock.advance(nextMs);
    }
  }
}
