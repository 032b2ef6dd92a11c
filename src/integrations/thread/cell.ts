import type { StandbyLoss } from "../../client/index.ts";

// The words of a cell. Each is written by one thread alone, so that no two writes can get in each other's way.

/** Until when the application's thread has proven the lease. */
const FIRST_PROOF = 0;
/** Until when the heartbeat's thread has. */
const SECOND_PROOF = 1;
/** Why the heartbeat's thread knows the lease to be over: an index of `losses`. */
const LOSS = 2;
/** Whether the application's thread is done with the lease: 1 if so. */
const OVER = 3;
const WORDS = 4;

const losses: readonly (StandbyLoss | undefined)[] = [undefined, "gone", "taken-over", "max-hold", "blocked"];

/**
 * What two threads tell each other about one lease, in memory that they share. Times are milliseconds of the time that all
 * threads of a process have in common: see `shared-time.ts`.
 *
 * A cell belongs to one lease for good. Were it used again for the next one, an answer about the former lease that is still
 * on its way to the heartbeat's thread would be taken for proof of the next.
 */
export class Cell {
  readonly buffer: SharedArrayBuffer;
  readonly #words: BigInt64Array;

  constructor(buffer = new SharedArrayBuffer(WORDS * BigInt64Array.BYTES_PER_ELEMENT)) {
    this.buffer = buffer;
    this.#words = new BigInt64Array(buffer);
  }

  get firstProofMs(): number {
    return toMs(Atomics.load(this.#words, FIRST_PROOF));
  }

  set firstProofMs(untilMs: number) {
    Atomics.store(this.#words, FIRST_PROOF, toMicros(untilMs));
  }

  get secondProofMs(): number {
    return toMs(Atomics.load(this.#words, SECOND_PROOF));
  }

  set secondProofMs(untilMs: number) {
    Atomics.store(this.#words, SECOND_PROOF, toMicros(untilMs));
  }

  get loss(): StandbyLoss | undefined {
    return losses[Number(Atomics.load(this.#words, LOSS))];
  }

  set loss(loss: StandbyLoss) {
    Atomics.store(this.#words, LOSS, BigInt(losses.indexOf(loss)));
  }

  get isOver(): boolean {
    return Atomics.load(this.#words, OVER) !== 0n;
  }

  end(): void {
    Atomics.store(this.#words, OVER, 1n);
  }
}

/** As far ahead as a word tells exactly: two centuries. */
const MAX_MS = Number.MAX_SAFE_INTEGER / 1_000;

/** Rounded down: nobody may believe more than was proven. */
export function toMicros(ms: number): bigint {
  return BigInt(Math.floor(Math.min(ms, MAX_MS) * 1_000));
}

export function toMs(micros: bigint): number {
  return Number(micros) / 1_000;
}
