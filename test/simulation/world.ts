/** Virtual time, the machines that live in it, and the network between them. */
import type { Clock, Timer } from "holdfast";
import { settled } from "holdfast/testing";
import { type HeapOrder, heapInsert, heapRemove } from "../../src/record/heap.ts";
import type { Random } from "./random.ts";

export interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
  slot: number;
}

const byTime: HeapOrder<Event> = {
  before: (a, b) => a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order),
  slotOf: (event) => event.slot,
  setSlot: (event, slot) => {
    event.slot = slot;
  },
};

/** How a network misbehaves, each as a probability per message. */
export interface Weather {
  drop: number;
  repeat: number;
  /** Much later than usual, so that messages overtake each other. */
  straggle: number;
  /** The caller learns of a broken connection, though the request may have arrived. */
  reset: number;
}

export const calm: Weather = { drop: 0, repeat: 0, straggle: 0, reset: 0 };

/** A machine: it has a clock of its own, can be stopped for a while, and can die. */
export class Machine {
  readonly name: string;
  /** How fast its clock runs, and how wrong its wall clock is. */
  readonly rate: number;
  readonly skewMs: number;
  readonly clock: Clock;
  readonly #world: World;
  paused = false;
  dead = false;
  readonly #deferred: (() => void)[] = [];

  constructor(world: World, name: string, rate: number, skewMs: number) {
    this.#world = world;
    this.name = name;
    this.rate = rate;
    this.skewMs = skewMs;
    this.clock = {
      monotonicMs: () => 5_000 + world.nowMs * rate,
      wallMs: () => Date.UTC(2030, 0, 1) + skewMs + world.nowMs * rate,
      setTimer: (delayMs, callback) => this.#setTimer(delayMs, callback),
    };
  }

  /** Runs something here: now, after the pause, or never if it is dead. */
  do(action: () => void): void {
    if (this.dead) return;
    if (this.paused) this.#deferred.push(action);
    else action();
  }

  resume(): void {
    this.paused = false;
    for (const action of this.#deferred.splice(0)) this.#world.in(0, () => this.do(action));
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#setTimer(ms, resolve));
  }

  #setTimer(delayMs: number, callback: () => void): Timer {
    // A hair late, so that rounding cannot make it early by this machine's clock.
    const event = this.#world.in(Math.max(0, delayMs) / this.rate + 1e-6, () => this.do(callback));
    return { cancel: () => this.#world.cancel(event), keepAlive: () => {} };
  }
}

export class World {
  readonly random: Random;
  /** Lines of what happened, for a person; empty unless somebody wants to read them. */
  readonly log: string[] = [];
  readonly tracing: boolean;
  nowMs = 0;
  weather: Weather = calm;
  /** Machines that the network does not reach. */
  readonly cutOff = new Set<Machine>();
  steps = 0;
  #order = 0;
  readonly #events: Event[] = [];

  constructor(random: Random, tracing: boolean) {
    this.random = random;
    this.tracing = tracing;
  }

  say(line: () => string): void {
    if (this.tracing) this.log.push(`${this.nowMs.toFixed(1).padStart(9)}  ${line()}`);
  }

  in(delayMs: number, run: () => void): Event {
    const event: Event = { atMs: this.nowMs + delayMs, order: this.#order++, run, slot: -1 };
    heapInsert(this.#events, event, byTime);
    return event;
  }

  cancel(event: Event): void {
    if (event.slot === -1) return;
    heapRemove(this.#events, event, byTime);
    event.slot = -1;
  }

  /** Carries something from one machine to another, as well as the weather allows. Whether it is on its way. */
  send(from: Machine, to: Machine, what: () => string, arrive: () => void): boolean {
    const { random, weather } = this;
    if (this.cutOff.has(from) || this.cutOff.has(to) || random.chance(weather.drop)) {
      this.say(() => `${from.name} -> ${to.name} ${what()} LOST`);
      return false;
    }
    const copies = random.chance(weather.repeat) ? 2 : 1;
    for (let copy = 0; copy < copies; copy++) {
      const delayMs = random.chance(weather.straggle) ? random.between(50, 3_000) : random.between(0.5, 10);
      this.in(delayMs, () => {
        this.say(() => `${from.name} -> ${to.name} ${what()}${copy > 0 ? " (again)" : ""}`);
        to.do(arrive);
      });
    }
    return true;
  }

  /** Lets time pass, looking at the world after every event and whatever it set in motion. */
  async run(untilMs: number, look: () => Promise<void>): Promise<void> {
    for (let next = this.#events[0]; next !== undefined && next.atMs <= untilMs; next = this.#events[0]) {
      this.cancel(next);
      this.nowMs = next.atMs;
      this.steps++;
      next.run();
      await settled();
      await look();
    }
    this.nowMs = untilMs;
  }
}
