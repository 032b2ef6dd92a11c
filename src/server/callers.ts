/** Identifies callers by their tokens, and bounds how many calls, waits and watches each principal has at a time. */
import { HoldfastError } from "../store/index.ts";
import type { Principal } from "./access.ts";
import { UnknownCaller } from "./call-errors.ts";
import type { ResolvedLimits } from "./limits.ts";
import { type Owner, prefixOf } from "./ownership.ts";
import type { Peer } from "./peer.ts";
import { bearerHash, type Tokens } from "./tokens.ts";

/** A principal, or an address on a server without tokens, with the counts that its limits are compared with. */
export interface Client extends Owner {
  /** For messages. */
  readonly name: string;
  /** The name of the token. Undefined on a server without tokens. */
  readonly principal: string | undefined;
  claims: number;
  /** Open calls and sessions. The calls that wait, and the watches, are counted again by themselves. */
  calls: number;
  waitingCalls: number;
  watches: number;
}

export function newClient(name: string, prefix: string, principal?: string): Client {
  return { name, prefix, principal, claims: 0, calls: 0, waitingCalls: 0, watches: 0 };
}

/** The origin of a request to the store. The peer is missing if the server itself makes the request. */
export interface Requester {
  readonly client: Client;
  readonly peer?: Peer | undefined;
}

/** An identified caller. */
export interface Caller extends Requester {
  readonly peer: Peer;
  /** Looks the token up again if the tokens have changed. Throws `UNAUTHORIZED` if the token was removed. */
  principal(): Principal;
}

const anyone: Principal = { name: "anyone" };

/** Idle clients are forgotten beyond this number: a server without tokens has one for each address. */
const MAX_CLIENTS = 10_000;

export class Callers {
  readonly #tokens: Tokens | undefined;
  readonly #clients = new Map<string, Client>();

  constructor(tokens: Tokens | undefined) {
    this.#tokens = tokens;
  }

  /** Throws `UNAUTHORIZED` without a known token. On a server without tokens, callers of the same `group` share limits. */
  identify(authorization: string | undefined, group: string, peer: Peer): Caller {
    const tokens = this.#tokens;
    if (tokens === undefined) return { client: this.#clientOf(group, ""), peer, principal: () => anyone };
    const hash = bearerHash(authorization);
    let version = tokens.version;
    let principal = hash === undefined ? undefined : tokens.find(hash);
    if (hash === undefined || principal === undefined) throw new UnknownCaller();
    const { name } = principal;
    return {
      client: this.#clientOf(`the token "${name}"`, prefixOf(name), name),
      peer,
      principal() {
        if (version !== tokens.version) {
          version = tokens.version;
          principal = tokens.find(hash);
        }
        if (principal === undefined) throw new UnknownCaller();
        return principal;
      },
    };
  }

  #clientOf(name: string, prefix: string, principal?: string): Client {
    const known = this.#clients.get(name);
    if (known !== undefined) return known;
    if (this.#clients.size > MAX_CLIENTS) {
      for (const [other, { claims, calls }] of this.#clients)
        if (claims + calls === 0) this.#clients.delete(other);
    }
    const client = newClient(name, prefix, principal);
    this.#clients.set(name, client);
    return client;
  }
}

const counts = {
  maxCalls: { count: "calls", name: "open calls and sessions" },
  maxWaitingCalls: { count: "waitingCalls", name: "waiting calls" },
  maxWatches: { count: "watches", name: "watches" },
} as const;

/** Counts one more until the returned function is called or the signal aborts. Throws at the limit. */
export function occupy(
  client: Client,
  limit: keyof typeof counts,
  limits: ResolvedLimits,
  signal?: AbortSignal,
): () => void {
  const { count, name } = counts[limit];
  if (client[count] >= limits[limit]) {
    const message = `${client.name} has ${client[count]} ${name}, and the server allows ${limits[limit]} (limits.${limit}). End some first.`;
    throw new HoldfastError("UNAUTHORIZED", message);
  }
  client[count]++;
  let isFreed = false;
  const free = () => {
    if (isFreed) return;
    isFreed = true;
    client[count]--;
  };
  if (signal?.aborted) free();
  else signal?.addEventListener("abort", free, { once: true });
  return free;
}
