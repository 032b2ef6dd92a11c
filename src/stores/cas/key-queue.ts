/**
 * The operations that wait for one key, and when the next request for the key may start.
 *
 * If several processes swap one key at the same time, one wins and the others repeat their request. A process that loses
 * repeats at once; after several losses it waits a random part of its round trip. A process that wins while it meets others
 * rests for a random part of its round trip.
 *
 * A process whose round trip is longer than the others leave between two changes would still lose every time. So each second of
 * the server's time ends with a quiet period: processes that keep the record changing leave it alone, unless they have lost
 * several times in a row. A newcomer with a round trip of up to 25 ms gets into the record then, and the record is fair.
 */
import type { LockRecord } from "../../record/index.ts";
import type { HoldfastError } from "../../store/index.ts";
import type { CachedRecord } from "./cached-record.ts";
import type { Operation } from "./combine.ts";

/** After more losses in a row, a queue backs off and ignores quiet periods. */
const FREE_LOSSES = 2;
/** After a conflict, a queue expects more of them for this long. */
const CONTENDED_MS = 1_000;
/** A queue that swaps its record for this long without a gap keeps quiet periods, even if it met no other process. */
const BUSY_MS = 1_000;
/** A caller that goes on to its next call within this time leaves no gap. */
const GAP_MS = 5;
const QUIET_EVERY_MS = 1_000;
const QUIET_MS = 50;

/** The time until the current quiet period ends; 0 outside of one. */
export function quietLeftMs(serverMs: number): number {
  const leftMs = QUIET_EVERY_MS - (serverMs % QUIET_EVERY_MS);
  return leftMs <= QUIET_MS ? leftMs : 0;
}

export class KeyQueue {
  readonly key: string;
  pending: Operation[] = [];
  cached: CachedRecord | undefined;
  /** Whether the key was used since unused queues were last removed. */
  wasUsed = false;
  isSent = false;
  /** Whether it waits for the next request, or for a pause before that. */
  isQueued = false;
  #losses = 0;
  #conflictMs = Number.NEGATIVE_INFINITY;
  #restUntilMs = Number.NEGATIVE_INFINITY;
  #busySinceMs = Number.NEGATIVE_INFINITY;
  #wonMs = Number.NEGATIVE_INFINITY;

  constructor(key: string) {
    this.key = key;
  }

  get isActive(): boolean {
    return this.isSent || this.isQueued || this.pending.length > 0;
  }

  /** The end of the pause before the next request. */
  get restUntilMs(): number {
    return this.#restUntilMs;
  }

  take(): readonly Operation[] {
    const operations = this.pending;
    this.pending = [];
    this.isQueued = false;
    this.isSent = true;
    return operations;
  }

  /** Removes the cached record, because applying operations changes it. */
  takeCached(): CachedRecord | undefined {
    const { cached } = this;
    this.cached = undefined;
    return cached;
  }

  /** Puts operations back before those that were asked for later. */
  putBack(operations: readonly Operation[]): void {
    if (operations.length > 0) this.pending = [...operations, ...this.pending];
  }

  rejectPending(error: HoldfastError): void {
    for (const operation of this.pending) operation.reject(error);
    this.pending = [];
    this.isQueued = false;
  }

  /** The record was swapped. `chance` is from 0 to 1. */
  won(nowMs: number, tookMs: number, chance: number): void {
    if (nowMs - this.#wonMs > tookMs + GAP_MS) this.#busySinceMs = nowMs;
    this.#wonMs = nowMs;
    this.#losses = 0;
    if (nowMs - this.#conflictMs < CONTENDED_MS) this.#restUntilMs = nowMs + tookMs * chance;
  }

  /** Another process had swapped the record before. */
  lost(nowMs: number, tookMs: number, chance: number): void {
    this.#conflictMs = nowMs;
    this.#losses++;
    this.#restUntilMs = this.#losses > FREE_LOSSES ? nowMs + (tookMs * chance) / 4 : nowMs;
  }

  /** Whether the queue keeps quiet periods: others want the key, or would have had no chance to. */
  isContended(nowMs: number): boolean {
    if (this.#losses > FREE_LOSSES || this.cached === undefined) return false;
    if (nowMs - this.#conflictMs < CONTENDED_MS || isWaitedFor(this.cached.record)) return true;
    return nowMs - this.#wonMs < GAP_MS && nowMs - this.#busySinceMs > BUSY_MS;
  }
}

function isWaitedFor({ queue }: LockRecord): boolean {
  return queue.length > 0;
}
