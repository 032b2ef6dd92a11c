/**
 * Subscriptions to the grants that the store pushes. Any number of sessions and calls may listen for one owner: a client that
 * reconnects listens again while its former session is still open. The store has one subscription for each owner.
 */
import type { GrantListener, GrantRef, Unsubscribe } from "../store/index.ts";
import { type Owner, ownRef } from "./ownership.ts";

/** Owners without listeners stay subscribed up to this number: callers come back, and subscribing costs most stores a request. */
const MAX_IDLE = 32;

interface Subscription {
  /** For each listener the principal that it listens for, and how often it was added. */
  readonly listeners: Map<GrantListener, { readonly principal: Owner; count: number }>;
  readonly stop: Unsubscribe;
}

export class GrantSubscriptions {
  readonly #subscribe: (owner: string, listener: GrantListener) => Unsubscribe;
  readonly #subscriptions = new Map<string, Subscription>();
  /** Owners without listeners. The one that is idle for the longest time comes first. */
  readonly #idle = new Set<string>();

  constructor(subscribe: (owner: string, listener: GrantListener) => Unsubscribe) {
    this.#subscribe = subscribe;
  }

  /** Passes on the grants of claims that belong to the principal: names of owners are no secret. */
  listen(owner: string, principal: Owner, listener: GrantListener): Unsubscribe {
    const { listeners } = this.#subscriptions.get(owner) ?? this.#begin(owner);
    this.#idle.delete(owner);
    const known = listeners.get(listener) ?? { principal, count: 0 };
    known.count++;
    listeners.set(listener, known);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      if (--known.count > 0) return;
      listeners.delete(listener);
      if (listeners.size === 0) this.#rest(owner);
    };
  }

  close(): void {
    for (const { stop } of this.#subscriptions.values()) stop();
    this.#subscriptions.clear();
  }

  #begin(owner: string): Subscription {
    const listeners: Subscription["listeners"] = new Map();
    const stop = this.#subscribe(owner, (refs: readonly GrantRef[]) => {
      for (const [listener, { principal }] of listeners) {
        const own = refs.flatMap((ref) => ownRef(ref, principal) ?? []);
        if (own.length > 0) listener(own);
      }
    });
    const subscription = { listeners, stop };
    this.#subscriptions.set(owner, subscription);
    return subscription;
  }

  #rest(owner: string): void {
    this.#idle.add(owner);
    const [longest] = this.#idle;
    if (longest === undefined || this.#idle.size <= MAX_IDLE) return;
    this.#idle.delete(longest);
    this.#subscriptions.get(longest)?.stop();
    this.#subscriptions.delete(longest);
  }
}
