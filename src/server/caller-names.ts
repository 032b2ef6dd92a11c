/**
 * The owners of claims that the calls of one principal make: its name and the address of the caller. The store pushes grants to owners, so
 * the server listens for each that has calls that may wait.
 */
import { randomUUID } from "node:crypto";
import type { GrantListener, Unsubscribe } from "../store/index.ts";
import type { Owner } from "./ownership.ts";
import { hostOf, type Source } from "./source.ts";

/** How many owners without calls the server still listens for. Callers come back, and listening costs most stores a request. */
const MAX_IDLE = 32;

interface Listening {
  calls: number;
  readonly stop: Unsubscribe;
}

export class CallerNames {
  readonly #principal: string;
  readonly #subscribe: (owner: string, listener: GrantListener) => Unsubscribe;
  /** Keeps the owners of two servers apart, since a caller may ask both. */
  readonly #suffix = `:${randomUUID().slice(0, 8)}`;
  readonly #listening = new Map<string, Listening>();
  /** Those of them without calls. The longest idle one comes first. */
  readonly #idle = new Set<string>();
  #listener: GrantListener = () => {};

  constructor({ prefix }: Owner, subscribe: (owner: string, listener: GrantListener) => Unsubscribe) {
    // As in ids, where the name has no "@".
    this.#principal = prefix.replace(/:$/, "@");
    this.#subscribe = subscribe;
  }

  /** Such as `billing@10.0.0.7:5f0c1b52`. */
  ownerOf(source: Source): string {
    return this.#principal + hostOf(source) + this.#suffix;
  }

  has(owner: string): boolean {
    return owner.startsWith(this.#principal) && owner.endsWith(this.#suffix);
  }

  /** The grants of all owners go to this listener. */
  onGrant(listener: GrantListener): Unsubscribe {
    this.#listener = listener;
    return () => {
      for (const { stop } of this.#listening.values()) stop();
      this.#listening.clear();
      this.#idle.clear();
    };
  }

  /** A call of this owner may wait until the returned function is called. */
  enter(owner: string): () => void {
    const listening = this.#listening.get(owner) ?? this.#listen(owner);
    listening.calls++;
    this.#idle.delete(owner);
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      if (--listening.calls === 0) this.#rest(owner);
    };
  }

  #listen(owner: string): Listening {
    const stop = this.#subscribe(owner, (refs) => this.#listener(refs));
    const listening = { calls: 0, stop };
    this.#listening.set(owner, listening);
    return listening;
  }

  #rest(owner: string): void {
    this.#idle.add(owner);
    const [longest] = this.#idle;
    if (longest === undefined || this.#idle.size <= MAX_IDLE) return;
    this.#idle.delete(longest);
    this.#listening.get(longest)?.stop();
    this.#listening.delete(longest);
  }
}
