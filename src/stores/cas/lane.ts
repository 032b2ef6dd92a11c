/**
 * One key's way to the server: what is pending for it, and its pace where other processes want the same key.
 *
 * Of several processes that swap the same key at the same time, one wins, and the others have to go again. Nothing on the
 * server's side is fair about that, so the lanes are: whoever lost goes again at once (and only after several losses a
 * little later, at random, so that the same ones do not meet again), while whoever won rests for a moment at random if it
 * has met others lately. A process that never meets anybody, because it is quicker than all of them, would shut out the
 * slow ones for as long as it has something to do. So it leaves the key alone for a moment every other second: whoever
 * makes its round trip in less than that gets in. From then on the queue in the record decides, and that is fair.
 */
import type { Clock, HoldfastError } from "../../core/index.ts";
import type { Known } from "./known.ts";
import type { Operation } from "./operation.ts";

/** After so many losses in a row, the next attempt waits for up to a round trip. */
const FREE_LOSSES = 2;
/** For how long a process that has met others counts on meeting them again. */
const MET_MS = 1_000;
/** After so long without a gap, a key is left alone for at least this, and up to twice this. */
const RUN_MS = 2_000;
const REST_MS = 50;
/** What is no gap: the time in which a caller goes on to its next call. */
const BREATH_MS = 5;

/** The one empty list of all lanes. It is never added to. */
const nothing: Operation[] = [];
const oneOperation: readonly (Operation | undefined)[] = [undefined];

export class Lane {
  readonly key: string;
  pending = nothing;
  /** What the key is as far as is known. */
  known: Known | undefined;
  /** Whether it was asked for since lanes were last forgotten. */
  wasUsed = false;
  inFlight = false;
  /** Whether it stands in line for a flight, or pauses before that. */
  isQueued = false;
  #losses = 0;
  #metAtMs = Number.NEGATIVE_INFINITY;
  #restUntilMs = Number.NEGATIVE_INFINITY;
  #runSinceMs = Number.NEGATIVE_INFINITY;
  #wonAtMs = Number.NEGATIVE_INFINITY;

  constructor(key: string) {
    this.key = key;
  }

  get isActive(): boolean {
    return this.inFlight || this.isQueued || this.pending.length > 0;
  }

  /** How long to wait before the next flight. The clock is read only where a lane has ever rested. */
  pauseMs(clock: Clock): number {
    if (this.#restUntilMs === Number.NEGATIVE_INFINITY) return 0;
    return Math.max(0, this.#restUntilMs - clock.monotonicMs());
  }

  add(operation: Operation): void {
    if (this.pending !== nothing) {
      this.pending.push(operation);
      return;
    }
    // To push onto an empty list makes room for seventeen, and this is no literal for the reason that `Operation` has.
    this.pending = oneOperation.slice() as Operation[];
    this.pending[0] = operation;
  }

  /** Takes all that is pending along. */
  takeOff(): readonly Operation[] {
    const operations = this.pending;
    this.pending = nothing;
    this.isQueued = false;
    this.inFlight = true;
    return operations;
  }

  /**
   * Takes what is known out: whoever applies operations to it changes it, so it is either replaced by what came of that, or it is
   * not known any more.
   */
  takeKnown(): Known | undefined {
    const { known } = this;
    this.known = undefined;
    return known;
  }

  land(): void {
    this.inFlight = false;
  }

  /** Puts operations back that came to nothing. They were asked for before all that has gathered since. */
  putBack(operations: readonly Operation[]): void {
    if (operations.length > 0) this.pending = [...operations, ...this.pending];
  }

  rejectPending(error: HoldfastError): void {
    for (const operation of this.pending) operation.reject(error);
    this.pending = nothing;
    this.isQueued = false;
  }

  /** The record was swapped. `chance` is from 0 to 1. */
  won(nowMs: number, tookMs: number, chance: number): void {
    if (nowMs - this.#wonAtMs > tookMs + BREATH_MS) this.#runSinceMs = nowMs;
    this.#wonAtMs = nowMs;
    this.#losses = 0;
    if (nowMs - this.#runSinceMs > RUN_MS) {
      this.#restUntilMs = nowMs + REST_MS * (1 + chance);
      this.#runSinceMs = this.#restUntilMs;
    } else if (nowMs - this.#metAtMs < MET_MS) {
      this.#restUntilMs = nowMs + 2 * tookMs * chance;
    }
  }

  /** Somebody else had swapped it before. */
  lost(nowMs: number, tookMs: number, chance: number): void {
    this.#metAtMs = nowMs;
    this.#losses++;
    // Not longer, however often it lost: it must be back before a gap that somebody leaves for it is over.
    this.#restUntilMs = this.#losses > FREE_LOSSES ? nowMs + tookMs * chance : nowMs;
  }
}
