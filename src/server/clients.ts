/** The client library on behalf of callers: one for each of them, with the leases of their open calls. */
import { type ClaimRef, createLocks, type Locks, type Store } from "../core/index.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { Holding } from "./holding.ts";
import type { Client } from "./ledger.ts";

export class Clients {
  readonly #store: GuardedStore;
  readonly #onWarning: (code: string) => void;
  readonly #locks = new Map<Client, Locks>();
  /** Open calls by the claims that they are about. */
  readonly #holdings = new Map<Client, Map<string, Holding>>();

  constructor(store: GuardedStore, onWarning: (code: string) => void) {
    this.#store = store;
    this.#onWarning = onWarning;
  }

  locksOf(client: Client): Locks {
    let locks = this.#locks.get(client);
    if (locks === undefined) {
      locks = createLocks(this.#storeOf(client), {
        closeStore: false,
        // Its message names the key, which is not for the log.
        onWarning: ({ code }) => this.#onWarning(code),
      });
      this.#locks.set(client, locks);
    }
    return locks;
  }

  /** Takes note of an open call. One that is about the same claims is told that this one goes on with them. */
  enter(client: Client, holding: Holding): void {
    let own = this.#holdings.get(client);
    if (own === undefined) {
      own = new Map();
      this.#holdings.set(client, own);
    }
    for (const name of namesOf(holding)) {
      const former = own.get(name);
      if (former !== holding) former?.handOver();
      own.set(name, holding);
    }
  }

  exit(client: Client, holding: Holding): void {
    const own = this.#holdings.get(client);
    for (const name of namesOf(holding)) if (own?.get(name) === holding) own.delete(name);
  }

  /** The open call that has this claim, if it is here. */
  find(client: Client, ref: ClaimRef): Holding | undefined {
    const holding = this.#holdings.get(client)?.get(nameOf(ref.key, ref.id));
    return holding?.token === ref.token ? holding : undefined;
  }

  /** Ends all open calls. Their claims stay. */
  leave(): void {
    for (const own of this.#holdings.values()) for (const holding of own.values()) holding.leave();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#locks.values()].map((locks) => locks.close()));
  }

  #storeOf(client: Client): Store {
    const guarded = this.#store;
    const { name, durability, counts } = guarded.store;
    return {
      name,
      durability,
      counts,
      acquire: (request) => guarded.acquire(request, client),
      renew: (refs) => guarded.renew(refs, client),
      release: (refs) => guarded.release(refs, client),
      look: (query) => guarded.look(query),
      onGrant: (owner, listener) => guarded.onGrant(owner, client, listener),
      async close() {},
    };
  }
}

function namesOf(holding: Holding): string[] {
  return holding.terms.keys.map(({ key }) => nameOf(key, holding.id));
}

/** Neither part can contain a line break. */
function nameOf(key: string, id: string): string {
  return `${id}\n${key}`;
}
