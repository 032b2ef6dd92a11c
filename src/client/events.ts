/**
 * The events of all clients of this process, through `node:diagnostics_channel`: one channel for each kind, by the name
 * `holdfast:<kind>`. While nobody listens to a channel, nothing is made for it. See docs/observability.md.
 */
import { type Channel, channel, subscribe, unsubscribe } from "node:diagnostics_channel";
import type { ErrorCode, HoldfastError, LeaseLostError, LossReason, Unsubscribe } from "../store/index.ts";
import { invalid } from "../store/index.ts";
import type { HoldfastWarning } from "./options.ts";

/**
 * The claim that an event is about. All events of one claim carry the same object, so it can be the key of a map. A lease
 * that is won again (`reacquire`) is another claim.
 */
export interface EventClaim {
  /** The key, or what the client's `eventKey` makes of it; undefined where keys are withheld. */
  readonly key: string | undefined;
  readonly id: string;
  /** The name of the store. */
  readonly store: string;
  /** The client, as the store knows it. */
  readonly owner: string;
  readonly application: string;
  readonly weight: number;
  readonly limit: number;
  readonly priority: number;
  readonly ttlMs: number;
  /** Whether it queues: false for a try. */
  readonly wait: boolean;
  /** When it was asked for, on the client's monotonic clock: `performance.now()`, unless it was given another clock. */
  readonly askedMs: number;
}

/** What every event of a claim tells. */
export interface ClaimEvent {
  readonly claim: EventClaim;
}

/** A lock is being asked for. */
export interface AcquireEvent extends ClaimEvent {
  /** How long the call waits: 0 for a try, `Infinity` without end. */
  readonly waitMs: number;
  /** Whether this is to win a lost lease again. */
  readonly again: boolean;
}

/** How asking for a lock ended, and after how long. */
export interface OutcomeEvent extends ClaimEvent {
  /** From the call on, the round trip to the store included. */
  readonly waitedMs: number;
}

/** The lock is held. */
export interface GrantedEvent extends OutcomeEvent {
  readonly fence: bigint;
  /** Whether this wins a lost lease again. */
  readonly again: boolean;
}

/** Nobody wants the claim any more. */
export interface CancelledEvent extends OutcomeEvent {
  readonly reason: CancelReason;
}

/** Why a claim is no longer asked for. */
export type CancelReason =
  /** The caller's signal aborted. */
  | "signal"
  /** The client was closed. */
  | "closed"
  /** The caller's signal aborted, and the claim stays in the store for somebody else. */
  | "detached"
  /** The lease was released while it was to be won again. */
  | "released"
  /** The lease was garbage-collected while it was to be won again. */
  | "abandoned"
  /** `maxHoldMs` was over while the lease was to be won again. */
  | "max-hold";

/** What went wrong. */
export interface Trouble {
  readonly code: ErrorCode;
  /** Whether the store is unavailable, rather than answering with an error. */
  readonly outage: boolean;
  /** The error itself. Left out where keys are withheld, because its message names the key, and where there was no answer at all. */
  readonly error?: HoldfastError;
}

/** An acquire failed. Contention and the end of a wait have events of their own. */
export interface FailedEvent extends OutcomeEvent, Trouble {}

/** A heartbeat was confirmed. */
export interface RenewedEvent extends ClaimEvent {
  readonly fence: bigint;
  /** How long the lease is proven from now on. */
  readonly leftMs: number;
}

/** A heartbeat of a held lease failed or went unanswered. It is repeated until the lease's deadline. */
export interface RenewalFailedEvent extends ClaimEvent, Trouble {
  /** How long the lease is still proven. */
  readonly leftMs: number;
}

/** `lease.extend` was confirmed. */
export interface ExtendedEvent extends ClaimEvent {
  readonly ttlMs: number;
}

/** A lease has ended. */
export interface EndEvent extends ClaimEvent {
  readonly fence: bigint;
  /** From the grant on. Of a release: until the store has confirmed it. */
  readonly heldMs: number;
}

/** A lease is lost: what it protects must stop. */
export interface LostEvent extends EndEvent {
  readonly reason: LossReason;
  /** Left out where keys are withheld, because its message names the key. */
  readonly error?: LeaseLostError;
}

/** The store has answered a release. */
export interface ReleasedEvent extends EndEvent {
  /** Whether the lease was still there. If not, somebody else may have held the key meanwhile. */
  readonly wasHeld: boolean;
}

/** The store did not confirm a release. The ttl ends the lease. */
export interface ReleaseFailedEvent extends EndEvent, Trouble {}

/** What every event of a client tells, where it is about no claim of its own. */
export interface ClientEvent {
  readonly store: string;
  readonly owner: string;
}

/** This client has ended somebody's claim by force. */
export interface ForceReleasedEvent extends ClientEvent {
  readonly key: string | undefined;
  readonly id: string;
  /** Whether there was such a claim. */
  readonly released: boolean;
}

/** A request failed because the store is unavailable, or it kept silent for too long; before that it had answered. */
export interface StoreUnavailableEvent extends ClientEvent, Trouble {}

/** The store answers again. */
export interface StoreAvailableEvent extends ClientEvent {
  /** For how long it did not, as far as this client noticed. */
  readonly downMs: number;
}

/** What `onWarning` is told as well. */
export interface WarningEvent extends ClientEvent {
  readonly code: HoldfastWarning["code"];
  readonly key: string | undefined;
  /** The warning itself. Left out where keys are withheld, because its message names the key. */
  readonly warning?: HoldfastWarning;
}

/** Every kind of event. The channel of a kind is `holdfast:<kind>`. */
export interface HoldfastEvents {
  acquire: AcquireEvent;
  /** The claim has to wait in the key's queue. */
  waiting: ClaimEvent;
  granted: GrantedEvent;
  /** A try found the lock taken. */
  contended: OutcomeEvent;
  /** `waitMs` was over. */
  timeout: OutcomeEvent;
  cancelled: CancelledEvent;
  failed: FailedEvent;
  renewed: RenewedEvent;
  "renewal-failed": RenewalFailedEvent;
  extended: ExtendedEvent;
  lost: LostEvent;
  released: ReleasedEvent;
  "release-failed": ReleaseFailedEvent;
  /** The lease is left in the store for somebody else. */
  detached: EndEvent;
  "force-released": ForceReleasedEvent;
  "store-unavailable": StoreUnavailableEvent;
  "store-available": StoreAvailableEvent;
  /** The client is closed. */
  closed: ClientEvent;
  warning: WarningEvent;
}

export type EventKind = keyof HoldfastEvents;

/** What to call for each kind of event. */
export type EventHandlers = { readonly [Kind in EventKind]?: (event: HoldfastEvents[Kind]) => void };

const open = (kind: EventKind): Channel => channel(`holdfast:${kind}`);

/** Kept for good, because whether anybody listens is asked in every lock cycle. */
export const channels: { readonly [Kind in EventKind]: Channel } = {
  acquire: open("acquire"),
  waiting: open("waiting"),
  granted: open("granted"),
  contended: open("contended"),
  timeout: open("timeout"),
  cancelled: open("cancelled"),
  failed: open("failed"),
  renewed: open("renewed"),
  "renewal-failed": open("renewal-failed"),
  extended: open("extended"),
  lost: open("lost"),
  released: open("released"),
  "release-failed": open("release-failed"),
  detached: open("detached"),
  "force-released": open("force-released"),
  "store-unavailable": open("store-unavailable"),
  "store-available": open("store-available"),
  closed: open("closed"),
  warning: open("warning"),
};

const kinds = Object.keys(channels) as readonly EventKind[];

export function publish<Kind extends EventKind>(kind: Kind, event: HoldfastEvents[Kind]): void {
  channels[kind].publish(event);
}

/**
 * Calls the handlers with the events of all clients of this process, as they happen, until the returned function is called.
 * What a handler throws is an uncaught exception of the process, and in no lock's way.
 *
 * @example
 * const stop = observe({ lost: ({ claim, reason }) => console.error(`${claim.key} is lost: ${reason}`) });
 */
export function observe(handlers: EventHandlers): Unsubscribe {
  const unknown = Object.keys(handlers).filter((kind) => !(kind in channels));
  if (unknown.length > 0) {
    throw invalid(`observe has no event "${unknown.join('", "')}". Its events are ${kinds.join(", ")}.`);
  }
  const subscriptions = kinds.flatMap((kind) => {
    const handler = handlers[kind] as ((event: unknown) => void) | undefined;
    if (handler === undefined) return [];
    if (typeof handler !== "function")
      throw invalid(`observe needs a function for "${kind}", not ${handler}.`);
    // A function of its own, so that the same handler can be used for several kinds and several times.
    return [{ name: `holdfast:${kind}`, listener: (event: unknown) => handler(event) }];
  });
  for (const { name, listener } of subscriptions) subscribe(name, listener);
  return () => {
    for (const { name, listener } of subscriptions) unsubscribe(name, listener);
  };
}
