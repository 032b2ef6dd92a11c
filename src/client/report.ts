/**
 * The statistics and events of one client. Counting is always on; an event is made only if its channel has listeners.
 *
 * An event describes its claim at once and is published by `flush`, when the step of the claim is complete. A listener may call
 * anything then, even end the claim of the event.
 */
import type { Clock } from "../platform/index.ts";
import type { HoldfastError, LossReason } from "../store/index.ts";
import type { ClaimOutcomes } from "./claim-outcomes.ts";
import {
  type CancelReason,
  channels,
  type EventClaim,
  type EventKind,
  type HoldfastEvents,
  publish,
  type Trouble,
} from "./events.ts";
import type { ClientSettings, HoldfastWarning } from "./options.ts";
import { newStats } from "./stats.ts";

export class Report {
  readonly stats = newStats();
  readonly #store: string;
  readonly #owner: string;
  readonly #clock: Clock;
  readonly #settings: ClientSettings;
  /** Since when the store has been unavailable, if it is. */
  #downSinceMs = 0;
  #isClosed = false;
  readonly #told: (() => void)[] = [];

  constructor(store: string, owner: string, settings: ClientSettings) {
    this.#store = store;
    this.#owner = owner;
    this.#clock = settings.clock;
    this.#settings = settings;
  }

  /** Runs something once the present step is complete. */
  later(tell: () => void): void {
    this.#told.push(tell);
  }

  /** The step is complete. */
  flush(): void {
    while (this.#told.length > 0) this.#told.shift()?.();
  }

  #publish<Kind extends EventKind>(kind: Kind, event: HoldfastEvents[Kind]): void {
    this.later(() => publish(kind, event));
  }

  // Asking and waiting.

  asked(claim: ClaimOutcomes, waitMs: number, again: boolean): void {
    if (!again) this.stats.asked++;
    if (channels.acquire.hasSubscribers)
      this.#publish("acquire", { claim: this.#claim(claim), waitMs, again });
  }

  waiting(claim: ClaimOutcomes): void {
    if (channels.waiting.hasSubscribers) this.#publish("waiting", { claim: this.#claim(claim) });
  }

  granted(claim: ClaimOutcomes, nowMs: number, again: boolean): void {
    if (!channels.granted.hasSubscribers) return;
    const subject = this.#claim(claim);
    this.#publish("granted", {
      claim: subject,
      waitedMs: nowMs - subject.askedMs,
      fence: claim.fence,
      again,
    });
  }

  contended(claim: ClaimOutcomes): void {
    this.stats.contended++;
    if (channels.contended.hasSubscribers) this.#publish("contended", this.#outcome(claim));
  }

  timedOut(claim: ClaimOutcomes): void {
    this.stats.timedOut++;
    if (channels.timeout.hasSubscribers) this.#publish("timeout", this.#outcome(claim));
  }

  // `again` says that no call of the application waited for it: it was to win a lost lease again.

  cancelled(claim: ClaimOutcomes, reason: CancelReason, again: boolean): void {
    if (!again) this.stats.cancelled++;
    if (channels.cancelled.hasSubscribers) this.#publish("cancelled", { ...this.#outcome(claim), reason });
  }

  failed(claim: ClaimOutcomes, error: HoldfastError, again: boolean): void {
    if (!again) this.stats.failed++;
    if (channels.failed.hasSubscribers) {
      this.#publish("failed", { ...this.#outcome(claim), ...this.#trouble(error) });
    }
  }

  // Holding.

  renewed(claim: ClaimOutcomes, leftMs: number): void {
    if (!channels.renewed.hasSubscribers) return;
    this.#publish("renewed", { claim: this.#claim(claim), fence: claim.fence, leftMs });
  }

  renewalFailed(claim: ClaimOutcomes, error: HoldfastError, leftMs: number): void {
    this.stats.renewalFailures++;
    if (!channels["renewal-failed"].hasSubscribers) return;
    this.#publish("renewal-failed", { claim: this.#claim(claim), leftMs, ...this.#trouble(error) });
  }

  /** The same of a heartbeat that got no answer at all. It is noticed in the middle of a step, so it is told after that. */
  renewalUnanswered(claim: ClaimOutcomes, leftMs: number): void {
    this.stats.renewalFailures++;
    if (!channels["renewal-failed"].hasSubscribers) return;
    // No error: there was none, and making one for each of a hundred thousand leases would take a second of an outage.
    const event = { claim: this.#claim(claim), leftMs, code: "STORE_UNAVAILABLE", outage: true } as const;
    queueMicrotask(() => publish("renewal-failed", event));
  }

  extending(claim: ClaimOutcomes, ttlMs: number, proven: Promise<void>): void {
    if (!channels.extended.hasSubscribers) return;
    const subject = this.#claim(claim);
    proven.then(
      () => publish("extended", { claim: subject, ttlMs }),
      () => {},
    );
  }

  /** A lease is lost, or one that was to be won again is given up. */
  lost(claim: ClaimOutcomes, wasHeld: boolean, reason: LossReason): void {
    if (!wasHeld) {
      // The loss was counted and published before.
      this.cancelled(claim, reason as CancelReason, true);
      return;
    }
    this.stats.lost++;
    this.stats.lostBy[reason]++;
    if (!channels.lost.hasSubscribers) return;
    const heldMs = this.#clock.monotonicMs() - claim.heldSinceMs;
    const error = this.#tellsKeys ? { error: claim.lossError } : {};
    this.#publish("lost", { claim: this.#claim(claim), fence: claim.fence, heldMs, reason, ...error });
  }

  // Giving back.

  released(claim: ClaimOutcomes, wasHeld: boolean): void {
    if (!channels.released.hasSubscribers) return;
    this.#publish("released", {
      claim: this.#claim(claim),
      fence: claim.fence,
      heldMs: this.#clock.monotonicMs() - claim.heldSinceMs,
      wasHeld,
    });
  }

  releaseFailed(claim: ClaimOutcomes, error: HoldfastError): void {
    this.stats.releaseFailures++;
    if (!channels["release-failed"].hasSubscribers) return;
    const heldMs = this.#clock.monotonicMs() - claim.heldSinceMs;
    const trouble = this.#trouble(error);
    this.#publish("release-failed", { claim: this.#claim(claim), fence: claim.fence, heldMs, ...trouble });
  }

  detached(claim: ClaimOutcomes): void {
    this.stats.detached++;
    if (!channels.detached.hasSubscribers) return;
    const heldMs = this.#clock.monotonicMs() - claim.heldSinceMs;
    this.#publish("detached", { claim: this.#claim(claim), fence: claim.fence, heldMs });
  }

  forceReleased(key: string, id: string, released: boolean): void {
    if (released) this.stats.forceReleased++;
    if (!channels["force-released"].hasSubscribers) return;
    publish("force-released", { ...this.#client(), key: this.#label(key), id, released });
  }

  // The store, and everything else.

  /** A request failed. */
  requestFailed(error: HoldfastError, isOutage = error.retryable): void {
    this.stats.failures++;
    if (isOutage) this.outage(error);
  }

  /** The store failed a request so, or has been silent for too long. */
  outage(error: HoldfastError): void {
    if (!this.stats.storeAvailable || this.#isClosed) return;
    this.#downSinceMs = this.#clock.monotonicMs();
    this.stats.outages++;
    this.stats.storeAvailable = false;
    if (!channels["store-unavailable"].hasSubscribers) return;
    const event = { ...this.#client(), ...this.#trouble(error) };
    // Noticed in the middle of a step, so it is told after that.
    queueMicrotask(() => publish("store-unavailable", event));
  }

  /** The store has answered a request. */
  answered(): void {
    if (this.stats.storeAvailable || this.#isClosed) return;
    const downMs = this.#clock.monotonicMs() - this.#downSinceMs;
    this.stats.storeAvailable = true;
    if (!channels["store-available"].hasSubscribers) return;
    queueMicrotask(() => publish("store-available", { ...this.#client(), downMs }));
  }

  /** The client is closed. Requests still under way report no outage and no recovery from now on. */
  closed(): void {
    this.#isClosed = true;
    if (channels.closed.hasSubscribers) queueMicrotask(() => publish("closed", this.#client()));
  }

  warn(warning: HoldfastWarning): void {
    this.stats.warnings++;
    this.#settings.onWarning(warning);
    if (!channels.warning.hasSubscribers) return;
    const { code, key } = warning;
    const told = this.#tellsKeys ? { warning } : {};
    publish("warning", { ...this.#client(), code, key: this.#label(key), ...told });
  }

  /** The one object that stands for a claim in all of its events, made when it is first needed. */
  #claim(claim: ClaimOutcomes): EventClaim {
    claim.subject ??= this.#describe(claim);
    return claim.subject;
  }

  #describe({ request, askedMs }: ClaimOutcomes): EventClaim {
    const { id, owner, application, weight, limit, priority, ttlMs, wait } = request;
    const key = this.#label(request.key);
    return { key, id, store: this.#store, owner, application, weight, limit, priority, ttlMs, wait, askedMs };
  }

  #outcome(claim: ClaimOutcomes): { claim: EventClaim; waitedMs: number } {
    const subject = this.#claim(claim);
    return { claim: subject, waitedMs: this.#clock.monotonicMs() - subject.askedMs };
  }

  #trouble(error: HoldfastError): Trouble {
    const { code, retryable } = error;
    return { code, outage: retryable, ...(this.#tellsKeys ? { error } : {}) };
  }

  #client(): { store: string; owner: string } {
    return { store: this.#store, owner: this.#owner };
  }

  get #tellsKeys(): boolean {
    return this.#settings.eventKey === undefined;
  }

  #label(key: string): string | undefined {
    const { eventKey } = this.#settings;
    if (eventKey === undefined) return key;
    return eventKey === false ? undefined : eventKey(key);
  }
}
