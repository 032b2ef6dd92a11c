/**
 * One key's way to the server: what is pending for it, and its pace where other processes want the same key.
 *
 * Of several processes that swap the same key at the same time, one wins, and the others have to go again. Nothing on the
 * server's side is fair about that, so the lanes are: whoever lost goes again at once (and only after several losses a
 * little later, at random, so that the same ones do not meet again), while whoever won rests for a moment at random if it
 * has met others lately.
 *
 * That is not enough for a newcomer whose round trip takes longer than others leave between two changes, be it by little: it would
 * lose for as long as they are at it. So there are lulls. One is due every quarter of a second, and the last grant before that
 * begins it: whoever sees that grant in the record leaves the record alone for three of its round trips, counted from the grant, or for
 * 50 ms if that is more, every other second. All keep it, with nobody to tell them, as nobody can swap a record that he has not seen; but for those
 * who have just lost several times, for whom it is. They may lose twice more until they have seen what the others leave alone. So,
 * where the key is granted every 20 ms or more often, a newcomer is in the record
 *
 * - within a quarter of a second (or 120 of the others' round trips, if that is more), if it is no further away than the others;
 * - within two seconds, if its round trip takes up to 16 ms, however near the others are.
 *
 * From then on the queue in the record decides, and that is fair. Where grants are rarer, one may come too early to begin the lull, and
 * there is more time between changes. Where the database has no clock, a grant has the time of whoever made it: if their clocks
 * are further apart than 20 ms, lulls come as often, but by chance.
 *
 * Where nobody waits and nobody was met, nothing is granted but to this process, and there are no lulls. It leaves the key
 * alone for a moment after every two seconds without a gap.
 */
import type { Clock } from "../../platform/index.ts";
import type { LockRecord } from "../../record/index.ts";
import type { HoldfastError } from "../../store/index.ts";
import type { Known } from "./known.ts";
import type { Operation } from "./operation.ts";

/** After so many losses in a row, the next attempt waits for up to a quarter of a round trip, and lulls are not kept. */
const FREE_LOSSES = 2;
/** For how long a process that has met others counts on meeting them again. */
const MET_MS = 1_000;
/** After so long without a gap, a key is left alone for at least this, and up to twice this. Every lull that is due with it is as long. */
const RUN_MS = 2_000;
const REST_MS = 50;
/**
 * How long lulls are, how often they are due at least, and the share of the time that they may take: where round trips take
 * longer, every second, fourth or eighth is kept. A grant begins one within the last so much of the time before it is due.
 */
const LULL_ROUND_TRIPS = 3;
const LULL_EVERY_MS = 250;
const LULL_SHARE = 0.05;
const LULL_BEGINS = 0.08;
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
  /** Which lull was kept last, by the time that it was due. */
  #lullDueMs = 0;

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
      this.#restUntilMs = nowMs + tookMs * chance;
    }
  }

  /** Somebody else had swapped it before. */
  lost(nowMs: number, tookMs: number, chance: number): void {
    this.#metAtMs = nowMs;
    this.#losses++;
    // Not longer, however often it lost: it must be back before a gap that somebody leaves for it is over.
    this.#restUntilMs = this.#losses > FREE_LOSSES ? nowMs + (tookMs * chance) / 4 : nowMs;
  }

  /** The record is known anew: keeps the lull that it begins, or what is left of that by the server's time, where there is such a thing. */
  seen(nowMs: number, tookMs: number, serverMs: number | undefined): void {
    const { known } = this;
    if (known === undefined || this.#losses > FREE_LOSSES) return;
    if (known.record.queue.length === 0 && nowMs - this.#metAtMs >= MET_MS) return;
    const grantedAtMs = latestGrantMs(known.record);
    const roundTripsMs = LULL_ROUND_TRIPS * tookMs;
    let everyMs = LULL_EVERY_MS;
    while (everyMs < roundTripsMs / LULL_SHARE && everyMs < RUN_MS) everyMs *= 2;
    const leftMs = everyMs - (grantedAtMs % everyMs);
    const dueMs = grantedAtMs + leftMs;
    if (leftMs > everyMs * LULL_BEGINS || dueMs === this.#lullDueMs) return;
    this.#lullDueMs = dueMs;
    const lullMs = dueMs % RUN_MS === 0 ? Math.max(REST_MS, roundTripsMs) : roundTripsMs;
    const pastMs = serverMs === undefined ? 0 : Math.max(0, serverMs - grantedAtMs);
    this.#restUntilMs = Math.max(this.#restUntilMs, nowMs + Math.min(lullMs, 2 * REST_MS) - pastMs);
  }
}

/** When the latest grant was made, by the clock of whoever made it; 0: that claim is not held any more. */
function latestGrantMs({ held, fence }: LockRecord): number {
  return held.find((claim) => claim.fence === fence)?.acquiredAtMs ?? 0;
}
