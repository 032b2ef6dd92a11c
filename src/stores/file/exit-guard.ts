/**
 * Keeps a process from exiting while its thread is in a transaction. Node stops the threads of an exiting process anywhere; `lmdb`
 * then waits forever for the transaction to end, so the process would not exit and would keep the file locked.
 */

/** 1 while the thread is in a transaction. */
const BUSY = 0;
/** 1 once the process is exiting. */
const EXITING = 1;

export function newExitGuard(): SharedArrayBuffer {
  return new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT);
}

/** In the thread: runs work that has transactions. Does not return once the process is exiting. */
export function guarded<T>(guard: SharedArrayBuffer, work: () => T): T {
  const flags = new Int32Array(guard);
  Atomics.store(flags, BUSY, 1);
  // The exiting thread sets EXITING and then reads BUSY, so one of the two threads sees the other.
  if (Atomics.load(flags, EXITING) === 1) {
    leave(flags);
    Atomics.wait(flags, EXITING, 1);
  }
  try {
    return work();
  } finally {
    leave(flags);
  }
}

function leave(flags: Int32Array): void {
  Atomics.store(flags, BUSY, 0);
  Atomics.notify(flags, BUSY);
}

/** In the exiting thread: waits until no thread is in a transaction, and lets none begin another. */
export function waitForTransactions(guards: Iterable<SharedArrayBuffer>): void {
  const all = [...guards].map((guard) => new Int32Array(guard));
  for (const flags of all) Atomics.store(flags, EXITING, 1);
  for (const flags of all) Atomics.wait(flags, BUSY, 1);
}
