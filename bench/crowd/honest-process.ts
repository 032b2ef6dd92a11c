/** An honest client: some leases to keep, and a lock cycle every few milliseconds. */
import { createLocks, type Lease } from "holdfast";
import { remoteStore } from "holdfast/remote";
import { offer } from "../child.ts";
import { quantileOf } from "../statistics.ts";

export interface Honest {
  readonly url: string;
  readonly leases: number;
  readonly ttlMs: number;
}

export interface Cycles {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

const EVERY_MS = 10;

let locks: ReturnType<typeof createLocks>;
let leases: Lease[] = [];

const functions = {
  async hold({ url, leases: count, ttlMs }: Honest): Promise<void> {
    locks = createLocks(remoteStore(url));
    const mutexes = Array.from({ length: count }, (_, n) => locks.mutex(`honest/${n}`, { ttlMs }));
    leases = await Promise.all(mutexes.map((mutex) => mutex.acquire()));
  },
  /** Begins a cycle every so often, whether or not those before have ended. Each counts from when it was due. */
  async cycle({ durationMs }: { durationMs: number }): Promise<Cycles> {
    const startMs = performance.now();
    const took: number[] = [];
    const cycle = async (index: number) => {
      const lease = await locks.mutex(`honest/cycle/${index}`).acquire();
      await lease.release();
      took.push(performance.now() - startMs - index * EVERY_MS);
    };
    const cycles: Promise<void>[] = [];
    while (performance.now() - startMs < durationMs) {
      while (cycles.length * EVERY_MS < performance.now() - startMs) cycles.push(cycle(cycles.length));
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await Promise.all(cycles);
    return { p50Ms: quantileOf(took, 0.5), p99Ms: quantileOf(took, 0.99), maxMs: Math.max(...took) };
  },
  async lost(): Promise<number> {
    return leases.filter((lease) => !lease.held).length;
  },
};

export type HonestProcess = typeof functions;

offer(functions);
