/**
 * What time it is on the server, as far as this process can know.
 *
 * Every reply tells the server's time T, read somewhere between the moments at which the request was sent and the reply
 * received. A moment later the server's time is therefore within two bounds, which move apart as the clocks may drift:
 *
 *     low  = T + (now − received) · (1 − drift)        high = T + (now − sent) · (1 + drift)
 *
 * The narrowest sample counts. One that contradicts it takes its place: then the server's clock was set, or it is
 * another server's, or this machine was suspended.
 */

import { HoldfastError } from "../../store/index.ts";

/** The server's time at a moment of this process, in whole milliseconds. */
export interface TimeBounds {
  /** It is not earlier than this. */
  readonly lowMs: number;
  /** Nor later than this. */
  readonly highMs: number;
  /** What fences are made from, where that is not the time in microseconds. */
  readonly stamp?: bigint;
}

/** With the stamp in any case, so that the claims of a flight share one. */
export interface StampedBounds extends TimeBounds {
  readonly stamp: bigint;
}

export function withStamp({ lowMs, highMs, stamp }: TimeBounds): StampedBounds {
  return { lowMs, highMs, stamp: stamp ?? BigInt(highMs) * 1_000n };
}

/** Where `casStore` has the time from. */
export interface TimeSource {
  add(serverMs: number, sentMs: number, receivedMs: number): void;
  reset(): void;
  at(nowMs: number): TimeBounds | undefined;
}

interface Sample {
  readonly serverMs: number;
  readonly sentMs: number;
  readonly receivedMs: number;
}

/** Servers may round their time down to whole milliseconds. */
const TICK_MS = 1;

/** Bounds that are wider than this are not relied upon, unless the sample is so fresh that another would be no better. */
const WIDE_MS = 250;
const FRESH_MS = 1_000;

/**
 * By how much later than thought a life may have begun that was counted from the upper bound: the request was sent before
 * the server read its clock, so what is left of that life by then is left to its owner, whatever the bounds were worth. They
 * are worth nothing where this machine was suspended after the sample; else this is no more than the network's unevenness.
 */
export function lateness(highMs: number, serverMs: number): number {
  return Math.max(0, Math.ceil(serverMs + TICK_MS - highMs));
}

export class ServerTime implements TimeSource {
  readonly #drift: number;
  readonly #maxAgeMs: () => number;
  #sample: Sample | undefined;

  /** The drift is by how much, as a fraction, the rates of the two clocks may differ. How old a sample may be is asked each time. */
  constructor(drift: number, maxAgeMs: () => number) {
    this.#drift = drift;
    this.#maxAgeMs = maxAgeMs;
  }

  /** Learns from a reply, by this process's monotonic clock. Throws where the driver has told no time: nothing could be decided. */
  add(serverMs: number, sentMs: number, receivedMs: number): void {
    if (!Number.isFinite(serverMs)) {
      const what = `nowMs in a driver's reply must be the server's time in milliseconds since 1970, not ${serverMs}.`;
      throw new HoldfastError("STORE_FAILURE", what);
    }
    const next: Sample = { serverMs, sentMs, receivedMs };
    const known = this.#sample;
    // One that is not used any more is no better than any: kept because it is narrower, it would have the time asked for again and again.
    if (known !== undefined && this.at(receivedMs) !== undefined && this.#isBetter(known, next)) return;
    this.#sample = next;
  }

  /** Forgets all samples, because the server did not agree with what follows from them. */
  reset(): void {
    this.#sample = undefined;
  }

  /** Undefined where a sample has to be taken first. */
  at(nowMs: number): TimeBounds | undefined {
    const sample = this.#sample;
    if (sample === undefined) return undefined;
    const ageMs = nowMs - sample.receivedMs;
    const { low, high } = this.#bounds(sample, nowMs);
    if (ageMs > this.#maxAgeMs() || (ageMs > FRESH_MS && high - low > WIDE_MS)) return undefined;
    return { lowMs: Math.floor(low), highMs: Math.ceil(high) };
  }

  #isBetter(known: Sample, next: Sample): boolean {
    const old = this.#bounds(known, next.receivedMs);
    const now = this.#bounds(next, next.receivedMs);
    // They contradict each other. Replies may overtake each other, so the later question has the later answer.
    if (now.low > old.high || now.high < old.low) return next.sentMs < known.sentMs;
    return old.high - old.low < now.high - now.low;
  }

  #bounds({ serverMs, sentMs, receivedMs }: Sample, nowMs: number): { low: number; high: number } {
    return {
      low: serverMs + (nowMs - receivedMs) * (1 - this.#drift),
      high: serverMs + TICK_MS + (nowMs - sentMs) * (1 + this.#drift),
    };
  }
}
