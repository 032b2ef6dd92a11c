/** The open calls of `Acquire`, `AcquireMany` and `AcquireDetached`, and the `Locks` that acquire and renew for them. */
import { randomUUID } from "node:crypto";
import { createLocks, type Locks } from "../client/index.ts";
import {
  type ClaimRef,
  type GrantListener,
  HoldfastError,
  type RenewAnswer,
  type Store,
  type Unsubscribe,
} from "../store/index.ts";
import type { AcquireCall } from "./acquire-call.ts";
import type { Caller, Client } from "./callers.ts";
import type { GuardedStore } from "./guarded-store.ts";
import { hostOf } from "./peer.ts";

/** The limit of open calls for one claim: the present one, those that ask for it again, and those that end. */
const MAX_CALLS_PER_CLAIM = 8;

/** A `Locks` for calls of one client. It can have each claim once, so another call for the same claim uses another one. */
interface ClientLocks {
  readonly locks: Locks;
  readonly calls: Map<string, AcquireCall>;
  /** The owner and the listener that `locks` gave to its store. */
  owner: string;
  listener: GrantListener;
}

export class AcquireCalls {
  readonly #store: GuardedStore;
  readonly #onWarning: (code: string) => void;
  /** The end of all owners, which tells this server from others. */
  readonly #ownerSuffix = `:${randomUUID().slice(0, 8)}`;
  readonly #byClient = new Map<Client, ClientLocks[]>();

  constructor(store: GuardedStore, onWarning: (code: string) => void) {
    this.#store = store;
    this.#onWarning = onWarning;
  }

  /** Registers an open call. `listen` subscribes to its grants. */
  enter({ client, peer }: Caller, call: AcquireCall): { locks: Locks; listen(): Unsubscribe } {
    const names = namesOf(call);
    const all = this.#of(client);
    const free = all.find(({ calls }) => !names.some((name) => calls.has(name)));
    if (free === undefined && all.length === MAX_CALLS_PER_CLAIM) throw tooManyError(call);
    const own = free ?? this.#add(client, all);
    call.owner = `${client.prefix.replace(/:$/, "@")}${hostOf(peer)}${this.#ownerSuffix}`;
    for (const name of names) own.calls.set(name, call);
    return { locks: own.locks, listen: () => this.#store.onGrant(call.owner, client, own.listener) };
  }

  exit(client: Client, call: AcquireCall): void {
    for (const { calls } of this.#of(client)) {
      for (const name of namesOf(call)) if (calls.get(name) === call) calls.delete(name);
    }
  }

  /** The latest open call that has this claim. */
  find(client: Client, ref: ClaimRef): AcquireCall | undefined {
    return this.#of(client)
      .flatMap(({ calls }) => calls.get(nameOf(ref)) ?? [])
      .filter(({ token }) => token === ref.token)
      .sort((a, b) => b.number - a.number)[0];
  }

  /** Ends all open calls. Their claims stay in the store. */
  leave(): void {
    for (const { calls } of this.#all()) for (const call of calls.values()) call.leave();
  }

  async close(): Promise<void> {
    await Promise.all(this.#all().map(({ locks }) => locks.close()));
  }

  #all(): readonly ClientLocks[] {
    return [...this.#byClient.values()].flat();
  }

  #of(client: Client): ClientLocks[] {
    const all = this.#byClient.get(client) ?? [];
    this.#byClient.set(client, all);
    return all;
  }

  #add(client: Client, all: ClientLocks[]): ClientLocks {
    const own = { calls: new Map(), owner: "", listener: () => {} };
    const locks = createLocks(this.#storeFor(client, own), {
      closeStore: false,
      // The message of a warning names the key, which does not belong into the log.
      onWarning: ({ code }) => this.#onWarning(code),
    });
    const added = Object.assign(own, { locks });
    all.push(added);
    return added;
  }

  /** Ends earlier calls for a claim, once the store has let `taker` have it. A refused request ends no call. */
  #endEarlierCalls(client: Client, ref: ClaimRef, taker: AcquireCall): void {
    for (const { calls } of this.#of(client)) {
      const former = calls.get(nameOf(ref));
      if (former !== undefined && former.number < taker.number) former.handOver();
    }
  }

  /** A store that replaces the one owner that `Locks` uses by the owners of its calls. */
  #storeFor(client: Client, own: Omit<ClientLocks, "locks">): Store {
    const guarded = this.#store;
    const { name, durability, counts } = guarded.store;
    // A late request of an earlier call with the same id is no takeover by another client.
    const withLocksOwner = (answer: RenewAnswer): RenewAnswer =>
      answer.state === "gone" && answer.takenOverBy?.endsWith(this.#ownerSuffix)
        ? { ...answer, takenOverBy: own.owner }
        : answer;
    return {
      name,
      durability,
      counts,
      acquire: async (request) => {
        const call = own.calls.get(nameOf(request));
        if (call === undefined) return guarded.acquire(request, { client });
        const answer = await guarded.acquire({ ...request, owner: call.owner }, call.caller);
        if (answer.state !== "refused") this.#endEarlierCalls(client, request, call);
        return answer;
      },
      renew: async (refs) => (await guarded.renew(refs, { client })).map(withLocksOwner),
      release: (refs) => guarded.release(refs, { client }),
      look: (query) => guarded.look(query),
      onGrant: (owner, listener) => {
        own.owner = owner;
        own.listener = listener;
        return () => {};
      },
      async close() {},
    };
  }
}

function namesOf({ terms, id }: AcquireCall): string[] {
  return terms.keys.map(({ key }) => nameOf({ key, id }));
}

/** Unique, because neither part contains a line break. */
function nameOf({ key, id }: ClaimRef): string {
  return `${id}\n${key}`;
}

function tooManyError({ terms, id }: AcquireCall): HoldfastError {
  const key = terms.keys[0]?.key ?? "";
  const message = `${MAX_CALLS_PER_CLAIM} calls ask for "${key}" with the request id "${id}". Wait until one of them has ended.`;
  return new HoldfastError("QUEUE_FULL", message, { key });
}
