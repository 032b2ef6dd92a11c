/** Finds out who makes a call, and remembers who that was while the call lasts. */
import type { Principal } from "./access.ts";
import type { Asker } from "./audit.ts";
import { UnknownCaller } from "./call-errors.ts";
import { type Client, newClient } from "./ledger.ts";
import { prefixOf } from "./ownership.ts";
import type { Source } from "./source.ts";
import { bearerHash, type Tokens } from "./tokens.ts";

/** Somebody who has been let in. */
export interface Visitor extends Asker {
  /** Asked anew each time, since the tokens may have changed. Throws `UNAUTHORIZED` when there is no such token any more. */
  principal(): Principal;
  readonly source: Source;
}

const anybody: Principal = { name: "anybody" };

export class Identities {
  readonly #tokens: Tokens | undefined;
  readonly #clients = new Map<string, Client>();

  constructor(tokens: Tokens | undefined) {
    this.#tokens = tokens;
  }

  /**
   * Lets somebody in. Throws `UNAUTHORIZED` without a token that is known, where there are tokens. `where` tells those apart
   * who have none.
   */
  admit(authorization: string | undefined, where: string, source: Source): Visitor {
    const tokens = this.#tokens;
    if (tokens === undefined) {
      const client = this.#clientOf(where, "");
      return { client, source, principal: () => anybody };
    }
    const hash = bearerHash(authorization);
    let version = tokens.version;
    let principal = hash === undefined ? undefined : tokens.find(hash);
    if (hash === undefined || principal === undefined) throw new UnknownCaller();
    const { name } = principal;
    const client = this.#clientOf(`the token "${name}"`, prefixOf(name), name);
    return {
      client,
      source,
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

  /** One for a name, as long as it has claims or calls: an address without any need not be remembered. */
  #clientOf(name: string, prefix: string, principal?: string): Client {
    const known = this.#clients.get(name);
    if (known !== undefined) return known;
    if (this.#clients.size > 10_000) {
      for (const [other, { claims, calls }] of this.#clients)
        if (claims + calls === 0) this.#clients.delete(other);
    }
    const client = newClient(name, prefix, principal);
    this.#clients.set(name, client);
    return client;
  }
}
