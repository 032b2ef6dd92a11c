/**
 * Who leads, for everybody in this client who wants to know: one look at the store in an interval, however many observe, and
 * none while nobody does. A change that this client itself has a part in is looked at right away.
 */

import type { Heartbeat } from "../../client/index.ts";
import { endable, jsonable, lookAtKey, type Waiting } from "../../client/index.ts";
import type { Timer } from "../../platform/index.ts";
import { onAbort } from "../../platform/index.ts";
import type { ClaimStatus } from "../../store/index.ts";
import { HoldfastError } from "../../store/index.ts";

/** Who leads. */
export interface Leader {
  /** The client that leads, as `locks.owner` names it. */
  readonly owner: string;
  /** What it said of itself. */
  readonly info: string;
  readonly application: string;
  /** Grows with every change of leader. */
  readonly fence: bigint;
  /** Since when, on the store's clock. */
  readonly sinceMs: number;
  /** Whether it is this client. */
  readonly self: boolean;
}

/** What `observe` tells: somebody leads, nobody does, or that cannot be known because the store does not answer. */
export type LeaderView =
  | { readonly state: "led"; readonly leader: Leader }
  | { readonly state: "vacant" }
  | { readonly state: "unknown"; readonly error: HoldfastError };

/** Options of `election.observe`. */
export interface ObserveOptions {
  /** Ends the observation when it aborts. */
  readonly signal?: AbortSignal;
}

export class LeaderWatch {
  readonly #heartbeat: Heartbeat;
  readonly #key: string;
  readonly #everyMs: number;
  readonly #observers = new Set<Waiting>();
  #view: LeaderView | undefined;
  #version = 0;
  #timer: Timer | undefined;
  #looking = false;
  /** Whether something happened while a look was under way, which may have come too early to see it. */
  #lookAgain = false;

  constructor(heartbeat: Heartbeat, key: string, everyMs: number) {
    this.#heartbeat = heartbeat;
    this.#key = key;
    this.#everyMs = everyMs;
  }

  async leader(): Promise<Leader | null> {
    const { held } = await lookAtKey(this.#heartbeat, this.#key, 1);
    return held[0] === undefined ? null : this.#leaderOf(held[0]);
  }

  /** Something has changed that a look would show. */
  nudge(): void {
    if (this.#observers.size === 0) return;
    if (this.#looking) this.#lookAgain = true;
    else void this.#look();
  }

  observe({ signal }: ObserveOptions): AsyncGenerator<LeaderView, void, void> {
    return endable((waiting) => this.#views(waiting, signal));
  }

  async *#views(waiting: Waiting, signal: AbortSignal | undefined): AsyncGenerator<LeaderView, void, void> {
    if (this.#heartbeat.closing || signal?.aborted === true) return;
    const leave = this.#heartbeat.onClosing(() => {
      this.#timer?.cancel();
      waiting.end();
    });
    const listenNoMore = signal === undefined ? undefined : onAbort(signal, waiting.end);
    this.#observers.add(waiting);
    if (this.#observers.size === 1) this.#view = undefined;
    this.nudge();
    try {
      for (let seen = this.#view === undefined ? this.#version : -1; !waiting.over; ) {
        if (this.#version === seen || this.#view === undefined) {
          await waiting.pause();
          continue;
        }
        seen = this.#version;
        yield this.#view;
      }
    } finally {
      leave();
      listenNoMore?.();
      this.#observers.delete(waiting);
      if (this.#observers.size === 0) this.#timer?.cancel();
    }
  }

  async #look(): Promise<void> {
    this.#timer?.cancel();
    this.#looking = true;
    do {
      this.#lookAgain = false;
      this.#tell(await this.#seen());
    } while (this.#lookAgain && this.#observers.size > 0);
    this.#looking = false;
    if (this.#observers.size === 0 || this.#heartbeat.closing) return;
    this.#timer = this.#heartbeat.clock.setTimer(this.#everyMs, () => void this.#look());
    this.#timer.keepAlive(true);
  }

  async #seen(): Promise<LeaderView> {
    try {
      const leader = await this.leader();
      return leader === null ? { state: "vacant" } : { state: "led", leader };
    } catch (error) {
      return { state: "unknown", error: HoldfastError.from(error, this.#key) };
    }
  }

  #tell(view: LeaderView): void {
    if (this.#heartbeat.closing || isSame(this.#view, view)) return;
    this.#view = view;
    this.#version++;
    for (const waiting of this.#observers) waiting.wake();
  }

  #leaderOf(claim: ClaimStatus): Leader {
    const { owner, info, application, fence = 0n, acquiredAtMs = 0 } = claim;
    const self = owner === this.#heartbeat.owner;
    return jsonable({ owner, info, application, fence, sinceMs: acquiredAtMs, self });
  }
}

/** Whether there is nothing new to tell. One fence is one leader's. */
function isSame(before: LeaderView | undefined, after: LeaderView): boolean {
  if (before?.state === "led" && after.state === "led") return before.leader.fence === after.leader.fence;
  return before?.state === after.state;
}
