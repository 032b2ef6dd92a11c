import { type Deferred, deferred } from "../platform/index.ts";
import type { ClaimRequest, HoldfastError, RenewRef } from "../store/index.ts";

interface Extension extends Deferred<void> {
  readonly askedMs: number;
  readonly ttlMs: number;
  readonly untilMs: number;
  readonly giveUpMs: number;
}

/** The calls of `extend` on one lease that wait for a heartbeat to prove what they asked for. */
export class Extensions {
  #open: Extension[] = [];
  #isOwnNext = false;

  /** Whether there are none. */
  get none(): boolean {
    return this.#open.length === 0;
  }

  /**
   * What the next heartbeat asks for: the longest ttl, or 0 when none is asked for. A lease that renews itself asks for its own after a refusal:
   * an application that went on asking for what is refused would else keep it from ever being renewed.
   */
  nextTtlMs(renews: boolean): number {
    const isOwn = this.#isOwnNext && renews;
    this.#isOwnNext = false;
    if (isOwn) return 0;
    return this.#open.reduce((longest, extension) => Math.max(longest, extension.ttlMs), 0);
  }

  /** What was asked for has failed: the store may be able to renew the lease for its own ttl alone. */
  ownNext(): void {
    this.#isOwnNext = true;
  }

  /** Whether one was asked for by then. What was asked for later has sent a heartbeat of its own. */
  anyAskedBy(sentMs: number): boolean {
    return this.#open.some(({ askedMs }) => askedMs <= sentMs);
  }

  /** When the first of them gives up. */
  get giveUpMs(): number {
    return this.#open.reduce(
      (first, extension) => Math.min(first, extension.giveUpMs),
      Number.POSITIVE_INFINITY,
    );
  }

  /** Resolves once the lease is proven until `untilMs`, or a heartbeat that asked for as much was answered. */
  add(ttlMs: number, untilMs: number, askedMs: number, giveUpMs: number): Promise<void> {
    const extension = { ...deferred<void>(), ttlMs, untilMs, askedMs, giveUpMs };
    this.#open.push(extension);
    return extension.promise;
  }

  /** The lease is proven until then, by the answer to a heartbeat that was sent at `sentMs` and asked for `ttlMs`. */
  prove(untilMs: number, sentMs: number, ttlMs: number): void {
    // A store may promise a little less than it was asked for. Asking again would bring no more.
    const done = (open: Extension) =>
      open.untilMs <= untilMs || (open.askedMs <= sentMs && open.ttlMs <= ttlMs);
    for (const extension of this.#take(done)) extension.resolve();
  }

  /**
   * The store has refused a heartbeat for a claim, sent at `sentMs`, for good: whoever asked for it is told at once. Whether
   * somebody did.
   */
  refuse({ token, ttlMs = 0 }: RenewRef, own: ClaimRequest, sentMs: number, error: HoldfastError): boolean {
    // Of the claim as it was before it was won again.
    if (token !== own.token) return false;
    // A heartbeat for the claim's own ttl stands for all that want no more. Of another one, what wants less may yet be granted.
    const leastMs = ttlMs === own.ttlMs ? 0 : ttlMs;
    const refused = this.#take(
      (open) => open.askedMs <= sentMs && leastMs <= open.ttlMs && open.ttlMs <= ttlMs,
    );
    for (const extension of refused) extension.reject(error);
    if (refused.length > 0) this.#isOwnNext = leastMs > 0;
    return refused.length > 0;
  }

  giveUp(nowMs: number, error: () => HoldfastError): void {
    for (const extension of this.#take((open) => open.giveUpMs <= nowMs)) extension.reject(error());
  }

  end(error: HoldfastError): void {
    for (const extension of this.#take(() => true)) extension.reject(error);
  }

  #take(which: (extension: Extension) => boolean): Extension[] {
    const taken = this.#open.filter(which);
    this.#open = this.#open.filter((extension) => !which(extension));
    return taken;
  }
}
