/**
 * Between the thread of a folder and the one that started it: nobody ends the process in the middle of a transaction.
 *
 * Node ends the threads of a process that exits, or fails, wherever they are. `lmdb` then waits for the transaction that its own thread
 * was in, for ever: the process does not end, and keeps the file from all others.
 */

/** Whether the thread is in the middle of something. */
const BUSY = 0;
/** Whether the process is about to end. */
const ENDING = 1;

/** @returns {SharedArrayBuffer} */
export function newGate() {
  return new SharedArrayBuffer(2 * Int32Array.BYTES_PER_ELEMENT);
}

/**
 * In the thread: does what has transactions in it. Once the process is about to end, nothing more is begun, and this does not return.
 *
 * @template T
 * @param {SharedArrayBuffer} gate
 * @param {() => T} work
 * @returns {T}
 */
export function undisturbed(gate, work) {
  const flags = new Int32Array(gate);
  Atomics.store(flags, BUSY, 1);
  // Looked at after that: whoever ends the process sets the one and then looks at the other, so one of the two sees it.
  if (Atomics.load(flags, ENDING) === 1) {
    leave(flags);
    Atomics.wait(flags, ENDING, 1);
  }
  try {
    return work();
  } finally {
    leave(flags);
  }
}

/** @param {Int32Array} flags */
function leave(flags) {
  Atomics.store(flags, BUSY, 0);
  Atomics.notify(flags, BUSY);
}

/**
 * In the thread that ends the process: lets all others finish what they are in the middle of. It waits for as long as that takes, because
 * a process that ended before would not end at all.
 *
 * @param {Iterable<SharedArrayBuffer>} gates
 */
export function closeGates(gates) {
  const all = [...gates].map((gate) => new Int32Array(gate));
  for (const flags of all) Atomics.store(flags, ENDING, 1);
  for (const flags of all) Atomics.wait(flags, BUSY, 1);
}
