/** The same work for Holdfast and for async-mutex, the mutex that most Node programs use within one process. */
import { Mutex } from "async-mutex";
import type { Lock } from "holdfast";
import { createLocks } from "holdfast";
import { alternate, type Pair, timed } from "../rounds.ts";

/** Cycles of one caller on a free mutex. */
export async function measureUncontended(cycles: number, rounds: number): Promise<Pair> {
  const locks = createLocks();
  const ours = locks.mutex("bench");
  const theirs = new Mutex();
  const pair = await alternate(
    () => timed(cycles, () => cycleLeases(ours, cycles)),
    () => timed(cycles, () => cycleMutex(theirs, cycles)),
    rounds,
  );
  await locks.close();
  return pair;
}

/** Cycles of many callers on one mutex, each of which asks again as soon as it has released. */
export async function measureContended(callers: number, cycles: number, rounds: number): Promise<Pair> {
  const locks = createLocks();
  const ours = locks.mutex("bench");
  const theirs = new Mutex();
  const each = Math.ceil(cycles / callers);
  const all = (cycle: () => Promise<void>) => Promise.all(Array.from({ length: callers }, cycle));
  const pair = await alternate(
    () => timed(each * callers, () => all(() => cycleLeases(ours, each))),
    () => timed(each * callers, () => all(() => cycleMutex(theirs, each))),
    rounds,
  );
  await locks.close();
  return pair;
}

export async function cycleLeases(mutex: Lock, cycles: number): Promise<void> {
  for (let cycle = 0; cycle < cycles; cycle++) {
    const lease = await mutex.acquire();
    await lease.release();
  }
}

async function cycleMutex(mutex: Mutex, cycles: number): Promise<void> {
  for (let cycle = 0; cycle < cycles; cycle++) {
    const release = await mutex.acquire();
    release();
  }
}
