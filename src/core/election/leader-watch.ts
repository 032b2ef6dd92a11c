/**
 * Who leads, for everybody in this client who wants to know: one look at the store in an interval, however many observe, and
 * none while nobody does. A change that this client itself has a part in is looked at right away.
 */
import type { Timer } from "../clock.ts";
import { type Deferred, deferred } from "../deferred.ts";
import { HoldfastError } from "../errors.ts";
import type { Heartbeat } from "../heartbeat.ts";
import { lookAtKey } from "../lock.ts";
import type { ClaimStatus } from "../store.ts";

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
  #observers = 0;
  #view: LeaderView | undefined;
  #version = 0;
  #change: Deferred<void> | undefined;
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
    if (this.#observers === 0) return;
    if (this.#looking) this.#lookAgain = true;
    else void this.#look();
  }

  async *observe({ signal }: ObserveOptions): AsyncGenerator<LeaderView, void, void> {
    if (this.#heartbeat.closing || signal?.aborted === true) return;
    const ended = deferred<void>();
    let over = false;
    const end = () => {
      over = true;
      ended.resolve();
    };
    const leave = this.#heartbeat.onClosing(() => {
      this.#timer?.cancel();
      end();
    });
    signal?.addEventListener("abort", end, { once: true });
    this.#observers++;
    if (this.#observers === 1) this.#view = undefined;
    this.nudge();
    try {
      for (let seen = this.#view === undefined ? this.#version : -1; !over; ) {
        if (this.#version === seen || this.#view === undefined) {
          this.#change ??= deferred();
          await Promise.race([this.#change.promise, ended.promise]);
          continue;
        }
        seen = this.#version;
        yield this.#view;
      }
    } finally {
      leave();
      signal?.removeEventListener("abort", end);
      this.#observers--;
      if (this.#observers === 0) this.#timer?.cancel();
    }
  }

  async #look(): Promise<void> {
    this.#timer?.cancel();
    this.#looking = true;
    do {
      this.#lookAgain = false;
      this.#tell(await this.#seen());
    } while (this.#lookAgain && this.#observers > 0);
    this.#looking = false;
    if (this.#observers === 0 || this.#heartbeat.closing) return;
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
    this.#change?.resolve();
    this.#change = undefined;
  }

  #leaderOf(claim: ClaimStatus): Leader {
    const { owner, info, application, fence = 0n, acquiredAtMs = 0 } = claim;
    return { owner, info, application, fence, sinceMs: acquiredAtMs, self: owner === this.#heartbeat.owner };
  }
}

/** Whether there is nothing new to tell. One fence is one leader's. */
function isSame(before: LeaderView | undefined, after: LeaderView): boolean {
  if (before?.state === "led" && after.state === "led") return before.leader.fence === after.leader.fence;
  return before?.state === after.state;
}
