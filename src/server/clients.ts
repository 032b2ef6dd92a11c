/** The client library on behalf of callers: one for each of them, with the leases of their open calls. */

import { createLocks, type Locks } from "../client/index.ts";
import { type ClaimRef, HoldfastError, type RenewAnswer, type Store } from "../store/index.ts";
import { CallerNames } from "./caller-names.ts";
import type { GuardedStore } from "./guarded-store.ts";
import type { Holding } from "./holding.ts";
import type { Visitor } from "./identity.ts";
import type { Client } from "./ledger.ts";

/** How many calls about one claim may be under way: the present one, those that ask to go on with it, and those that end. */
const MAX_SEATS = 8;

/** A client library, in which a claim is open once. So calls about the same claim are in different ones. */
interface Seat {
  readonly locks: Locks;
  readonly names: CallerNames;
  /** Open calls by the claims that they are about. */
  readonly holdings: Map<string, Holding>;
}

export class Clients {
  readonly #store: GuardedStore;
  readonly #onWarning: (code: string) => void;
  readonly #seats = new Map<Client, Seat[]>();

  constructor(store: GuardedStore, onWarning: (code: string) => void) {
    this.#store = store;
    this.#onWarning = onWarning;
  }

  /** Takes note of an open call, and returns what it asks through. */
  enter({ client, source }: Visitor, holding: Holding): Seat {
    const names = namesOf(holding);
    const seats = this.#seatsOf(client);
    const free = seats.find(({ holdings }) => !names.some((name) => holdings.has(name)));
    if (free === undefined && seats.length === MAX_SEATS) throw tooManyError(holding);
    const seat = free ?? this.#addSeat(client, seats);
    holding.owner = seat.names.ownerOf(source);
    for (const name of names) seat.holdings.set(name, holding);
    return seat;
  }

  exit(client: Client, holding: Holding): void {
    for (const { holdings } of this.#seatsOf(client)) {
      for (const name of namesOf(holding)) if (holdings.get(name) === holding) holdings.delete(name);
    }
  }

  /** The open call that has this claim, if it is here; of several, the latest. */
  find(client: Client, ref: ClaimRef): Holding | undefined {
    return this.#seatsOf(client)
      .flatMap(({ holdings }) => holdings.get(nameOf(ref)) ?? [])
      .filter(({ token }) => token === ref.token)
      .sort((a, b) => b.number - a.number)[0];
  }

  /** Ends all open calls. Their claims stay. */
  leave(): void {
    for (const { holdings } of this.#all()) for (const holding of holdings.values()) holding.leave();
  }

  async close(): Promise<void> {
    await Promise.all(this.#all().map(({ locks }) => locks.close()));
  }

  #all(): readonly Seat[] {
    return [...this.#seats.values()].flat();
  }

  #seatsOf(client: Client): Seat[] {
    const seats = this.#seats.get(client) ?? [];
    this.#seats.set(client, seats);
    return seats;
  }

  #addSeat(client: Client, seats: Seat[]): Seat {
    const holdings = new Map<string, Holding>();
    const names = new CallerNames(client, (owner, listener) => this.#store.onGrant(owner, client, listener));
    const locks = createLocks(this.#storeOf(client, holdings, names), {
      closeStore: false,
      // Its message names the key, which is not for the log.
      onWarning: ({ code }) => this.#onWarning(code),
    });
    const seat = { locks, names, holdings };
    seats.push(seat);
    return seat;
  }

  /** The store has let a call have its claim. Earlier calls about the same claim end, and not before: this one might have been refused. */
  #took(client: Client, ref: ClaimRef, taker: Holding): void {
    for (const { holdings } of this.#seatsOf(client)) {
      const former = holdings.get(nameOf(ref));
      if (former !== undefined && former.number < taker.number) former.handOver();
    }
  }

  /** The store as the library sees it: there all claims have one owner, and in the store that of their callers. */
  #storeOf(client: Client, holdings: Map<string, Holding>, names: CallerNames): Store {
    const guarded = this.#store;
    const { name, durability, counts } = guarded.store;
    let ownOwner = "";
    // Any seat of this client may have asked with the same id before.
    const isOwn = (owner: string) => this.#seatsOf(client).some((seat) => seat.names.has(owner));
    const seen = (answer: RenewAnswer): RenewAnswer =>
      answer.state === "gone" && isOwn(answer.takenOverBy ?? "")
        ? { ...answer, takenOverBy: ownOwner }
        : answer;
    return {
      name,
      durability,
      counts,
      acquire: async (request) => {
        const holding = holdings.get(nameOf(request));
        if (holding === undefined) return guarded.acquire(request, { client });
        const answer = await guarded.acquire({ ...request, owner: holding.owner }, holding.asker);
        if (answer.state !== "refused") this.#took(client, request, holding);
        return answer;
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

function namesOf({ terms, id }: Holding): string[] {
  return terms.keys.map(({ key }) => nameOf({ key, id }));
}

/** Neither part can contain a line break. */
function nameOf({ key, id }: ClaimRef): string {
  return `${id}\n${key}`;
}

function tooManyError({ terms, id }: Holding): HoldfastError {
  const key = terms.keys[0]?.key ?? "";
  const message = `${MAX_SEATS} calls ask for "${key}" with the request id "${id}". Wait until one of them has ended.`;
  return new HoldfastError("QUEUE_FULL", message, { key });
}
