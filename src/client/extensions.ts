/** The calls of `extend` on one lease that wait for a heartbeat to prove the time they asked for. */
import { type Deadline, earliest } from "../platform/index.ts";
import type { ClaimRequest, RenewRef } from "../store/index.ts";

export interface Extension {
  /** The number by which the runner finds the caller. */
  readonly ticket: number;
  readonly askedMs: number;
  readonly ttlMs: number;
  /** The call succeeds once the lease is proven until then. */
  readonly untilMs: number;
  readonly giveUpMs: number;
}

export class Extensions {
  open: Extension[] = [];
  /** Whether the next heartbeat asks for the lease's own ttl. Requests for a longer ttl may be failing. */
  isOwnNext = false;

  get none(): boolean {
    return this.open.length === 0;
  }

  /** The time at which the first of them gives up. */
  get giveUpMs(): Deadline {
    let first: Deadline;
    for (const { giveUpMs } of this.open) first = earliest(first, giveUpMs);
    return first;
  }

  /** The longest ttl that is asked for, or 0 if the next heartbeat asks for the lease's own ttl. */
  nextTtlMs(renews: boolean): number {
    const isOwn = this.isOwnNext && renews;
    this.isOwnNext = false;
    if (isOwn) return 0;
    return this.open.reduce((longest, { ttlMs }) => Math.max(longest, ttlMs), 0);
  }

  /** Whether a call was made by then. Later calls have sent heartbeats of their own. */
  anyAskedBy(sentMs: number): boolean {
    return this.open.some(({ askedMs }) => askedMs <= sentMs);
  }

  /**
   * Takes out the calls that an answer settles: the lease is proven until `untilMs` by a heartbeat sent at `sentMs` for `ttlMs`.
   * A store may grant a little less than was asked for. Asking again would not bring more.
   */
  takeProven(untilMs: number, sentMs: number, ttlMs: number): Extension[] {
    return this.take((open) => open.untilMs <= untilMs || (open.askedMs <= sentMs && open.ttlMs <= ttlMs));
  }

  /**
   * Takes out the calls that the store refused with a heartbeat sent at `sentMs`. A refused heartbeat for the lease's own ttl
   * stands for all shorter ones. A refused longer one does not: the store may grant less.
   */
  takeRefused({ token, ttlMs = 0 }: RenewRef, own: ClaimRequest, sentMs: number): Extension[] {
    // A heartbeat of the lease before it was won again.
    if (token !== own.token) return [];
    const leastMs = ttlMs === own.ttlMs ? 0 : ttlMs;
    const refused = this.take(
      (open) => open.askedMs <= sentMs && leastMs <= open.ttlMs && open.ttlMs <= ttlMs,
    );
    if (refused.length > 0) this.isOwnNext = leastMs > 0;
    return refused;
  }

  takeOverdue(nowMs: number): Extension[] {
    return this.take((open) => open.giveUpMs <= nowMs);
  }

  take(which: (extension: Extension) => boolean): Extension[] {
    const taken = this.open.filter(which);
    if (taken.length > 0) this.open = this.open.filter((extension) => !which(extension));
    return taken;
  }
}
