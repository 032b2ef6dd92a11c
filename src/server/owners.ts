/** Passes the grants that the store pushes on to those who listen. */
import type { GrantListener, GrantRef, Unsubscribe } from "../store/index.ts";
import { heardBy, type Owner } from "./ownership.ts";

/** All who listen for one owner, and the one listener that a store takes for it. */
interface Listening {
  readonly listeners: Set<GrantListener>;
  readonly stop: Unsubscribe;
}

export class Owners {
  readonly #subscribe: (owner: string, listener: GrantListener) => Unsubscribe;
  readonly #listening = new Map<string, Listening>();

  constructor(subscribe: (owner: string, listener: GrantListener) => Unsubscribe) {
    this.#subscribe = subscribe;
  }

  /**
   * Any number may listen for one owner: a client that comes back does so while its former session is still open. Each hears of the claims
   * that are its principal's, since the names of owners are no secret.
   */
  listen(owner: string, principal: Owner, listener: GrantListener): Unsubscribe {
    const { listeners } = this.#listening.get(owner) ?? this.#begin(owner);
    const own = (refs: readonly GrantRef[]) => {
      const heard = refs.flatMap((ref) => heardBy(ref, principal) ?? []);
      if (heard.length > 0) listener(heard);
    };
    listeners.add(own);
    return () => {
      listeners.delete(own);
      const listening = this.#listening.get(owner);
      if (listening?.listeners !== listeners || listeners.size > 0) return;
      this.#listening.delete(owner);
      listening.stop();
    };
  }

  #begin(owner: string): Listening {
    const listeners = new Set<GrantListener>();
    const stop = this.#subscribe(owner, (refs) => {
      for (const listener of listeners) listener(refs);
    });
    const listening = { listeners, stop };
    this.#listening.set(owner, listening);
    return listening;
  }
}
