/**
 * Flat combining: what is asked for while requests are under way gathers by key, and goes out together.
 *
 * A key with something to do is a lane. A lane is in at most one flight at a time, a flight carries many lanes, and only a
 * few flights are under way at once. So a hundred callers of one key cost one swap, and so do a hundred keys.
 *
 * No answer comes from memory alone. What is known of a key is only a guess at what the server has: the swap compares its
 * version, also where nothing is to be written, and whatever was computed from a wrong guess is computed again from the
 * record that the conflict brings along.
 */

import type { Timer } from "../../platform/index.ts";
import type { LockRecord } from "../../record/index.ts";
import { HoldfastError } from "../../store/index.ts";
import type { ChangeResult, StoredRecord, SwapReply } from "./driver.ts";
import { triedInVain, unanswered } from "./errors.ts";
import type { FlightOptions } from "./flight-options.ts";
import { absent, Known, knownFrom } from "./known.ts";
import type { Lane } from "./lane.ts";
import { Lanes } from "./lanes.ts";
import { type Answer, type Asked, combine, Operation, shortened, turnOf } from "./operation.ts";
import { Passenger, sorted } from "./passenger.ts";
import { lateness, type TimeBounds, withStamp } from "./server-time.ts";

/** From so many lanes on, two flights are made of them where the driver works in halves. */
const FIRST_HALVED = 32;

export class Flights {
  readonly #options: FlightOptions;
  readonly #lanes: Lanes;
  #ready: Lane[] = [];
  #underWay = 0;
  #aside = 0;
  #isBoarding = false;
  /** Whether lanes were ready when the latest flight left, and had to stay. */
  #isAnyLeft = false;
  #closed: HoldfastError | undefined;
  readonly #landed: (() => void)[] = [];
  readonly #timers = new Set<Timer>();

  constructor(options: FlightOptions) {
    this.#options = options;
    this.#lanes = new Lanes(options.cachedKeys);
  }

  /** Resolves to the answer, or to what is made of it. */
  ask<A>(key: string, asked: Asked, made?: (answer: Answer) => A): Promise<A> {
    return new Promise<A>((resolve, reject) => {
      if (this.#closed !== undefined) {
        reject(this.#closed);
        return;
      }
      const answer = made === undefined ? (resolve as Operation["resolve"]) : (a: Answer) => resolve(made(a));
      const lane = this.#lanes.of(key);
      lane.add(new Operation(asked, answer, reject));
      this.#board(lane);
    });
  }

  /** Makes a request that concerns no lane, with the same patience, and waited for when closing. */
  async aside<R>(send: () => Promise<R>): Promise<R> {
    this.#aside++;
    try {
      return await this.#withinFlightTime(send);
    } catch (error) {
      throw HoldfastError.from(error);
    } finally {
      this.#aside--;
      this.#noteLanding();
    }
  }

  /** Refuses what is pending with this error, and resolves when nothing is under way any more. */
  async close(error: HoldfastError): Promise<void> {
    this.#closed ??= error;
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
    this.#ready = [];
    for (const lane of this.#lanes.values()) lane.rejectPending(this.#closed);
    if (this.#underWay + this.#aside > 0) await new Promise<void>((resolve) => this.#landed.push(resolve));
    this.#lanes.clear();
  }

  /** What was last known of a key. */
  recordOf(key: string): LockRecord | undefined {
    return this.#lanes.peek(key)?.known?.record;
  }

  /** Lets a lane take the next flight, or the one after its pause. */
  #board(lane: Lane): void {
    if (lane.isQueued || lane.inFlight || lane.pending.length === 0) return;
    lane.isQueued = true;
    const pauseMs = lane.pauseMs(this.#options.clock);
    if (pauseMs > 0) this.#in(pauseMs, () => this.#enqueue(lane));
    else this.#enqueue(lane);
  }

  #enqueue(lane: Lane): void {
    this.#ready.push(lane);
    this.#departSoon();
  }

  /** What is asked for in the same breath goes along: also by those who have their answers from different flights of one reply. */
  #departSoon(): void {
    if (this.#isBoarding) return;
    this.#isBoarding = true;
    // A tick that a microtask asks for comes after all microtasks.
    queueMicrotask(() => process.nextTick(this.#departNow));
  }

  readonly #departNow = () => {
    this.#isBoarding = false;
    this.#depart();
  };

  #depart(): void {
    const { driver, maxFlights, clock, time, maxChanges } = this.#options;
    while (this.#ready.length > 0 && this.#underWay < maxFlights && this.#closed === undefined) {
      const nowMs = clock.monotonicMs();
      const bounds = time.at(nowMs);
      // Where the other half would have to wait for the first one, nothing is gained by it.
      const isHalved =
        driver.worksInHalves && maxFlights > 1 && this.#underWay === 0 && this.#ready.length >= FIRST_HALVED;
      const seats = isHalved ? this.#half() : maxChanges;
      if (bounds === undefined) void this.#read(this.#ready.splice(0, seats));
      else void this.#swap(this.#passengers(bounds, seats), bounds, nowMs);
    }
    this.#isAnyLeft = this.#ready.length > 0;
  }

  /** The number of lanes in the first of two flights. If the driver has an order, neighbours go together. */
  #half(): number {
    const { driver, maxChanges } = this.#options;
    const { compareKeys } = driver;
    const half = Math.ceil(this.#ready.length / 2);
    // Whoever had to stay goes first. Sorted behind others each time, it might never go.
    if (this.#isAnyLeft || half > maxChanges) return Math.min(half, maxChanges);
    if (compareKeys !== undefined) this.#ready.sort((a, b) => compareKeys(a.key, b.key));
    return half;
  }

  #passengers(bounds: TimeBounds, seats: number): Passenger[] {
    const { combine: options, maxBatchBytes, driver } = this.#options;
    const passengers: Passenger[] = [];
    const turn = turnOf(withStamp(bounds));
    let bytes = 0;
    let taken = 0;
    while (taken < this.#ready.length && passengers.length < seats && bytes < maxBatchBytes) {
      const lane = this.#ready[taken++] as Lane;
      const operations = lane.takeOff();
      const known = lane.takeKnown();
      // A key of which nothing is known is guessed to be absent.
      const combined = combine(lane.key, known ?? absent(), operations, turn, options);
      bytes += combined.change.text?.length ?? 0;
      passengers.push(new Passenger(lane, operations, combined, known === undefined));
    }
    this.#ready.splice(0, taken);
    // Answers come in the same order, so what follows upon them is in order already.
    const { compareKeys } = driver;
    return compareKeys === undefined ? passengers : sorted(passengers, compareKeys);
  }

  /** The first flight of all, and after a long silence: what time is it, and what do the records say. */
  async #read(lanes: readonly Lane[]): Promise<void> {
    const { driver, prepare, time, clock } = this.#options;
    const asked = lanes.map((lane) => ({ lane, operations: lane.takeOff() }));
    let sentMs = 0;
    await this.#fly(
      async () => {
        await prepare();
        sentMs = clock.monotonicMs();
        return driver.read(lanes.map((lane) => lane.key));
      },
      (reply) => {
        time.add(reply.nowMs, sentMs, clock.monotonicMs());
        for (const [index, { lane, operations }] of asked.entries()) {
          lane.land();
          if (this.#learn(lane, operations, reply.records[index])) lane.putBack(operations);
        }
      },
      (error) => {
        for (const { lane, operations } of asked) {
          lane.land();
          for (const operation of operations) operation.reject(error);
        }
      },
    );
    this.#boardAgain(asked);
  }

  async #swap(passengers: readonly Passenger[], bounds: TimeBounds, sentMs: number): Promise<void> {
    const { driver, flightMs } = this.#options;
    const changes = passengers.map(({ combined }) => combined.change);
    const stamped = bounds.stamp === undefined ? {} : { stamp: bounds.stamp };
    const batch = { changes, earliestMs: bounds.lowMs, latestMs: bounds.highMs + flightMs, ...stamped };
    await this.#fly(
      () => driver.swap(batch),
      (reply) => this.#arrive(passengers, reply, bounds, sentMs),
      // Whether the changes were made is not known, so neither is what the keys are now: nothing is put back.
      (error) => {
        for (const { lane, operations } of passengers) {
          lane.land();
          for (const operation of operations) operation.reject(error);
        }
      },
    );
    this.#boardAgain(passengers);
  }

  #boardAgain(landed: readonly { readonly lane: Lane }[]): void {
    for (const { lane } of landed) {
      if (this.#closed === undefined) this.#board(lane);
      else lane.rejectPending(this.#closed);
    }
  }

  /** Counts the flight, and bounds the time for which its answer is waited for. */
  async #fly<R>(
    send: () => Promise<R>,
    arrive: (reply: R) => void,
    lose: (error: HoldfastError) => void,
  ): Promise<void> {
    this.#underWay++;
    try {
      arrive(await this.#withinFlightTime(send));
    } catch (error) {
      lose(HoldfastError.from(error));
    } finally {
      this.#underWay--;
      this.#noteLanding();
      if (this.#ready.length > 0) this.#departSoon();
    }
  }

  #noteLanding(): void {
    if (this.#underWay + this.#aside === 0) for (const resolve of this.#landed.splice(0)) resolve();
  }

  #withinFlightTime<R>(send: () => Promise<R>): Promise<R> {
    const { clock, flightMs, driver } = this.#options;
    return new Promise((resolve, reject) => {
      const timer = clock.setTimer(flightMs, () => {
        reject(unanswered(driver.name, flightMs));
      });
      timer.keepAlive(true);
      const settle = () => timer.cancel();
      // A driver that throws, instead of rejecting, has failed like any other.
      const reply = (async () => send())();
      reply.then(settle, settle);
      reply.then(resolve, reject);
    });
  }

  #arrive(passengers: readonly Passenger[], reply: SwapReply, bounds: TimeBounds, sentMs: number): void {
    const { time, clock, driver } = this.#options;
    const nowMs = clock.monotonicMs();
    const serverMs = driver.keepers === undefined ? reply.nowMs : undefined;
    const lateMs = serverMs === undefined ? 0 : lateness(bounds.highMs, serverMs);
    // The server has contradicted what the samples say.
    if (reply.results.some(({ state }) => state === "untimely")) time.reset();
    time.add(reply.nowMs, sentMs, nowMs);
    let index = 0;
    let keepUntilMs = Number.NEGATIVE_INFINITY;
    for (const passenger of passengers) {
      const result = reply.results[index++];
      passenger.lane.land();
      this.#conclude(passenger, result, lateMs, sentMs, nowMs);
      // Whoever has just come need not leave room for those who have just come.
      if (!passenger.isGuess) passenger.lane.seen(nowMs, nowMs - sentMs, serverMs);
      if (result?.state === "swapped")
        keepUntilMs = Math.max(keepUntilMs, passenger.combined.change.keepUntilMs);
    }
    if (keepUntilMs > Number.NEGATIVE_INFINITY) this.#options.onWritten(keepUntilMs - reply.nowMs);
  }

  #conclude(
    passenger: Passenger,
    result: ChangeResult | undefined,
    lateMs: number,
    sentMs: number,
    nowMs: number,
  ): void {
    const { random } = this.#options;
    const { lane, operations, combined } = passenger;
    const tookMs = nowMs - sentMs;
    switch (result?.state) {
      case "swapped":
        lane.won(nowMs, tookMs, random());
        this.#confirm(passenger, result.version, lateMs, sentMs);
        return;
      case "same":
        this.#confirm(passenger, combined.change.expected, lateMs, sentMs);
        return;
      case "conflict":
        if (!passenger.isGuess && combined.change.text !== undefined) lane.lost(nowMs, tookMs, random());
        if (this.#learn(lane, operations, result.current)) {
          this.#tryAgain(lane, operations, sentMs, "other processes kept changing the record");
        }
        return;
      case "untimely":
        this.#tryAgain(lane, operations, sentMs, "the server's clock contradicts its earlier answers");
        return;
      case "failed":
        for (const operation of operations) operation.reject(HoldfastError.from(result.error, lane.key));
        return;
      case undefined: {
        const what = `The driver of the ${this.#options.driver.name} store left a change of "${lane.key}" unanswered.`;
        const error = new HoldfastError("STORE_FAILURE", what, { key: lane.key });
        for (const operation of operations) operation.reject(error);
      }
    }
  }

  /** What was computed from the guess is true: the server has, or now has, what the guess said. */
  #confirm(passenger: Passenger, version: Known["version"], lateMs: number, sentMs: number): void {
    const { lane, operations, combined } = passenger;
    const { record, text } = combined;
    lane.known = new Known(version, text, record);
    const { keeping } = this.#options.combine;
    keeping?.confirm(lane.key, record);
    for (const operation of operations) {
      if (combined.left.includes(operation)) {
        operation.wasLeft = operation.answer !== undefined;
        continue;
      }
      const { answer, keeper, error } = operation;
      if (error !== undefined) {
        operation.reject(error);
        continue;
      }
      const given = shortened(answer, lateMs);
      const proven = keeping === undefined ? given : keeping.proven(given, keeper, sentMs);
      this.#options.onAnswer(lane.key, operation.asked, proven, record);
      operation.resolve(proven);
    }
    this.#options.onRecord(lane.key, record);
    if (combined.left.length > 0)
      this.#tryAgain(lane, combined.left, sentMs, "the store removes claims of processes that died");
  }

  /** The guess was wrong, or there was none: here is what the server has. Whether it can be read. */
  #learn(lane: Lane, operations: readonly Operation[], current: StoredRecord | undefined): boolean {
    try {
      lane.known = knownFrom(current, lane.key);
      this.#options.onRecord(lane.key, lane.known.record);
      return true;
    } catch (error) {
      // The record is left as it is. Other keys of the flight are none the worse for it.
      for (const operation of operations) operation.reject(HoldfastError.from(error, lane.key));
      return false;
    }
  }

  /** Nothing was written, so the operations can simply go again, until they have had their time. */
  #tryAgain(lane: Lane, operations: readonly Operation[], sentMs: number, why: string): void {
    const { clock, giveUpMs, driver } = this.#options;
    const sinceMs = clock.monotonicMs() - giveUpMs;
    const left = operations.filter((operation) => {
      operation.sinceMs ??= sentMs;
      if (operation.sinceMs > sinceMs) return true;
      operation.reject(triedInVain(lane.key, driver.name, giveUpMs, why));
      return false;
    });
    lane.putBack(left);
  }

  #in(delayMs: number, callback: () => void): void {
    const timer = this.#options.clock.setTimer(delayMs, () => {
      this.#timers.delete(timer);
      callback();
    });
    // Somebody awaits what is pending.
    timer.keepAlive(true);
    this.#timers.add(timer);
  }
}
