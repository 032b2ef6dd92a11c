/** Which session hears of the grants of which owner. */
import type { GrantListener, Unsubscribe } from "../core/index.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { Client } from "./ledger.ts";

interface Listening {
  readonly client: Client;
  readonly stop: Unsubscribe;
}

export class Owners {
  readonly #store: GuardedStore;
  readonly #listening = new Map<string, Listening>();

  constructor(store: GuardedStore) {
    this.#store = store;
  }

  /**
   * Passes an owner's grants on. A store tells one listener an owner, so a client that comes back takes over from its
   * former session. Nobody takes over from another client: the names of owners can be read by whoever may look.
   */
  listen(owner: string, client: Client, listener: GrantListener): Unsubscribe {
    const before = this.#listening.get(owner);
    if (before !== undefined && before.client !== client) return () => {};
    before?.stop();
    const listening: Listening = { client, stop: this.#store.onGrant(owner, listener) };
    this.#listening.set(owner, listening);
    return () => {
      if (this.#listening.get(owner) !== listening) return;
      this.#listening.delete(owner);
      listening.stop();
    };
  }
}
