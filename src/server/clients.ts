/** The client library on behalf of callers: one for each of them, with the leases of their open calls. */
import { type ClaimRef, createLocks, type Locks, type RenewAnswer, type Store } from "../core/index.ts";
import { CallerNames } from "./caller-names.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { Holding } from "./holding.ts";
import type { Client } from "./ledger.ts";

/** What serves the calls of one principal. */
export interface Callers {
  readonly locks: Locks;
  readonly names: CallerNames;
}

export class Clients {
  readonly #store: GuardedStore;
  readonly #onWarning: (code: string) => void;
  readonly #callers = new Map<Client, Callers>();
  /** Open calls by the claims that they are about. */
  readonly #holdings = new Map<Client, Map<string, Holding>>();

  constructor(store: GuardedStore, onWarning: (code: string) => void) {
    this.#store = store;
    this.#onWarning = onWarning;
  }

  callersOf(client: Client): Callers {
    let callers = this.#callers.get(client);
    if (callers === undefined) {
      const names = new CallerNames(client, (owner, listener) =>
        this.#store.onGrant(owner, client, listener),
      );
      const locks = createLocks(this.#storeOf(client, names), {
        closeStore: false,
        // Its message names the key, which is not for the log.
        onWarning: ({ code }) => this.#onWarning(code),
      });
      callers = { locks, names };
      this.#callers.set(client, callers);
    }
    return callers;
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
    await Promise.all([...this.#callers.values()].map(({ locks }) => locks.close()));
  }

  /** The store as the library sees it: there all claims have one owner, and in the store that of their callers. */
  #storeOf(client: Client, names: CallerNames): Store {
    const guarded = this.#store;
    const { name, durability, counts } = guarded.store;
    let ownOwner = "";
    const seen = (answer: RenewAnswer): RenewAnswer =>
      answer.state === "gone" && names.has(answer.takenOverBy ?? "")
        ? { ...answer, takenOverBy: ownOwner }
        : answer;
    return {
      name,
      durability,
      counts,
      acquire: (request) => {
        const holding = this.#holdings.get(client)?.get(nameOf(request.key, request.id));
        if (holding === undefined) return guarded.acquire(request, { client });
        return guarded.acquire({ ...request, owner: holding.owner }, holding.asker);
      },
      renew: async (refs) => (await guarded.renew(refs, { client })).map(seen),
      release: (refs) => guarded.release(refs, { client }),
      look: (query) => guarded.look(query),
      onGrant: (owner, listener) => {
        ownOwner = owner;
        return names.onGrant(listener);
      },
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
